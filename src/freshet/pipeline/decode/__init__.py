"""From raw records to outcomes, pure on Arrow: no Spark and no broker here."""
