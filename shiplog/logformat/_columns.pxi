# Records as the buffers of Arrow arrays. Filled in by the next step.
