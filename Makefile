# Two commands are all the set-up: `make demo` and `make test`. Each installs missing tools.

.PHONY: help demo test test-full lint deny report docs packages image

help:
	@echo 'make demo        install missing tools, build, and show a download beside a background rsync'
	@echo 'make test        install missing tools and run the tests that every change must pass'
	@echo 'make test-full   also run the tests that take hours or need a quiet machine'
	@echo 'make lint        check formatting, clippy, docs and scripts'
	@echo 'make report      draw the report, the figures and the tables from the records in report/'
	@echo 'make docs        build the documentation as a book, target/book/index.html'
	@echo 'make packages    build a .deb, an .rpm and a tarball in target/packages'
	@echo 'make image       build a container image of the servers in target/packages, as root'
	@echo 'make deny        check licences, sources and advisories of the dependencies'

demo test test-full lint deny report docs packages image:
	@scripts/$@.sh
