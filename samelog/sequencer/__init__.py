"""The sequencer: Raft-ordered merge instructions, executed alike by every node."""
