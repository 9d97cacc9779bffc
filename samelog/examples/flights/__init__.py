"""How late flights from New York were: real data, a pipeline on Spark, and its picture."""
