FIGURES: list = []
