"""The editions of a chapter, made from one text source, ``book/src/<slug>.md`` (`make chapters`).

* ``book/<slug>.ipynb``: executed, with outputs; Jupyter Book builds it and nbval runs it again.
* ``book/student/<slug>.ipynb``: plain Markdown, no outputs, no solutions; Colab and Lab open it.
* ``_build/instructor/<slug>.ipynb``: the same with solutions and rubrics (`make instructor`).
* ``_build/full/<slug>.ipynb``: plain Markdown with outputs and folded solutions (`make lab-full`).

``myst`` reads directives, ``chapter`` a source, ``numbers`` numbers statements as Sphinx does,
``plain`` writes Markdown that every viewer renders, ``copies`` makes copies from it (``reasons``:
what checks say), ``full`` adds outputs to one, ``executed`` makes the executed notebook, ``times``
says how long reading and running take, ``paths`` which ways lead through the book.
"""
