// waitgraph
