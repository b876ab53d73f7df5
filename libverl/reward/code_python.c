/* code_python.c - the file that runs a Python solution. See code.h.
 *
 * One file holds all: it also goes to a service that takes a single text. The names are those that
 * verl's prime_code gives a solution. A function's value is written to a descriptor of its own,
 * after everything the solution prints was turned to standard error; the expected value is not in
 * the file, so a solution cannot find it. */
#include "libverl/reward/code.h"

#include <string.h>

static const char head[] =
    "import json as _json, os as _os, sys as _sys, traceback as _traceback\n"
    "_modules = ('string re datetime collections heapq bisect copy math random statistics '\n"
    "            'itertools functools operator io sys json builtins typing').split()\n"
    "_names = {'__name__': '__main__'}\n"
    "exec(''.join('from %s import *\\n' % m for m in _modules) +\n"
    "     ''.join('import %s\\n' % m for m in _modules if m not in ('builtins', 'typing')), "
    "_names)\n"
    "_names.update(stdin=_sys.stdin, stdout=_sys.stdout)\n"
    "_sys.setrecursionlimit(600000)\n"
    "_sys.argv = ['solution.py']\n";

static const char compile_it[] = "try:\n"
                                 "    _code = compile(_src, 'solution.py', 'exec')\n"
                                 "except (SyntaxError, ValueError, RecursionError, MemoryError):\n"
                                 "    _traceback.print_exc(limit=0)\n"
                                 "    _sys.stderr.flush()\n"
                                 "    _os._exit(120)\n";

static const char run_it[] = "try:\n"
                             "    exec(_code, _names)\n"
                             "except SystemExit:\n"
                             "    pass\n";

static const char call_it[] =
    "_out = _os.dup(1)\n"
    "_os.dup2(2, 1)\n"
    "_names['__name__'] = 'solution'\n"
    "exec(_code, _names)\n"
    "_owner = _names['Solution']() if 'class Solution' in _src else None\n"
    "_call = getattr(_owner, _fn) if _owner is not None else _names[_fn]\n"
    "if _args and isinstance(_args[0], dict):\n"
    "    try:\n"
    "        _args = [{int(k): v for k, v in _args[0].items()}]\n"
    "    except ValueError:\n"
    "        pass\n"
    "_left = _json.dumps(_call(*_args)).encode()\n"
    "while _left:\n"
    "    _left = _left[_os.write(_out, _left):]\n";

void vl_code_python(struct vl_buf *out, const char *src, size_t n, const char *fn,
                    const struct vl_buf *args)
{
    /* JSON's strings are Python's, as long as none has an escaped surrogate: ours have none */
    vl_buf_str(out, head);
    vl_buf_str(out, "_src = ");
    vl_json_put_str(out, src, n);
    vl_buf_ch(out, '\n');
    vl_buf_str(out, compile_it);
    if (!fn) {
        vl_buf_str(out, run_it);
        return;
    }
    vl_buf_str(out, "_fn = ");
    vl_json_put_str(out, fn, strlen(fn));
    vl_buf_str(out, "\n_args = _json.loads(");
    vl_json_put_str(out, args->s, args->n);
    vl_buf_str(out, ")\n");
    vl_buf_str(out, call_it);
}
