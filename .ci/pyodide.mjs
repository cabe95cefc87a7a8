// Run the tests of the reference on Pyodide: node pyodide.mjs PYODIDE SITE SOURCES
// SITE has the installed wheel and pytest; SOURCES has the tests. There is no Hypothesis, no thread and no process.
import { createRequire } from "node:module";
import { resolve } from "node:path";

const [pyodide, site, sources] = process.argv.slice(2).map((path) => resolve(path));
const { loadPyodide } = createRequire(import.meta.url)(pyodide);
const python = await loadPyodide({ stdout: console.log, stderr: console.error });
python.mountNodeFS("/site", site);
python.mountNodeFS("/sources", sources);
process.exitCode = python.runPython(`
import os, pathlib, platform, sys
sys.path.insert(0, "/site")
sys.dont_write_bytecode = True
os.chdir("/sources")
import phpmq, pytest
assert phpmq.BACKEND == "python" and phpmq.__file__.startswith("/site/"), phpmq.__file__
tests = [test for test in pathlib.Path("tests/codecs.txt").read_text().split() if "differential" not in test]
code = pytest.main(["-q", "-p", "no:cacheprovider", "-o", "faulthandler_timeout=0", "--backends", "python",
    "-k", "not (threads or either_codec or real_package or nothing_optional)", *tests])
print(platform.python_implementation(), platform.python_version(), "on", sys.platform)
int(code)
`);
