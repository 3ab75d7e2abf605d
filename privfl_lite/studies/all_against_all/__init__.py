"""All against all: every defense, its attackers, its accuracy, its promises, its price."""
