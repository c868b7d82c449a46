"""Problems whose steps are not given: questions, candidates, and the tree of sub-problems."""
