"""What is archived, and why: the policy and the plan that follows from it. Pure."""
