"""One file per verb, each with a `verb` command, imported only when it is called.

Nothing imports a verb. Imports `agent`, `engines`, `errors`, `job`, `program`, `quantities`, `records`,
`run`, `screens`, `serving`, `system` and `units`; of `cli`: `arguments`, `chaos_run`, `checkpoint_views`,
`predicting`, `serving_session` and `session`.
"""
