"""The closed forms of each paper, under the paper's own numbering."""
