# Two commands are all the set-up: `make demo` and `make test`. Each installs what is missing.

.PHONY: help demo test lint deny report

help:
	@echo 'make demo   install what is missing, build, and show the main job'
	@echo 'make test   install what is missing, and run all tests'
	@echo 'make lint   formatting, clippy, docs and scripts'
	@echo 'make report draw the report, the figures and the tables from the records in report/'
	@echo 'make deny   licences, sources and advisories of the dependencies'

demo test lint deny report:
	@scripts/$@.sh
