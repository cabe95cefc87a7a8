"""How fast phpmq is, beside what people would use instead."""
