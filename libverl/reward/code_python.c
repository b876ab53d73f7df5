/* code_python.c - the file that runs a Python solution. See code.h.
 *
 * One file holds all: it also goes to a service that takes a single text. The names are those that
 * verl's prime_code gives a solution. A function's value is written to a descriptor of its own,
 * after everything the solution prints was turned to standard error; the expected value is not in
 * the file, so a solution cannot find it. */
#include "libverl/reward/code.h"

#include <string.h>

static const char head[] = "import builtins as _builtins, os as _os, sys as _sys\n"
                           "_names = {'__name__': '__main__', '__builtins__': _builtins, "
                           "'stdin': _sys.stdin, 'stdout': _sys.stdout}\n"
                           "_sys.setrecursionlimit(600000)\n"
                           "_sys.argv = ['solution.py']\n";

/* The imports take three times what the interpreter does, so they are made only for a program that
 * uses a name it does not make itself; 1024 asks for the tree (ast.PyCF_ONLY_AST). */
static const char compile_it[] =
    "try:\n"
    "    _tree = compile(_src, 'solution.py', 'exec', 1024)\n"
    "    _code = compile(_src, 'solution.py', 'exec')\n"
    "except (SyntaxError, ValueError, RecursionError, MemoryError):\n"
    "    import traceback\n"
    "    traceback.print_exc(limit=0)\n"
    "    _sys.stderr.flush()\n"
    "    _os._exit(120)\n"
    "_used, _own, _todo = set(), set(dir(_builtins)) | {'stdin', 'stdout', '__name__'}, "
    "[_tree]\n"
    "while _todo:\n"
    "    _node = _todo.pop()\n"
    "    if type(_node).__name__ == 'Name' and type(_node.ctx).__name__ == 'Load':\n"
    "        _used.add(_node.id)\n"
    "    elif type(_node).__name__ == 'alias':\n"
    "        _own.add(_node.asname or _node.name.split('.')[0])\n"
    "    for _field in _node._fields:\n"
    "        _value = getattr(_node, _field, None)\n"
    "        if _field in ('id', 'name', 'arg', 'rest') and isinstance(_value, str) and "
    "type(_node).__name__ != 'keyword':\n"
    "            if _field != 'id' or type(_node.ctx).__name__ == 'Store':\n"
    "                _own.add(_value)\n"
    "        for _child in _value if isinstance(_value, list) else [_value]:\n"
    "            if hasattr(_child, '_fields'):\n"
    "                _todo.append(_child)\n"
    "if not _used <= _own or '*' in _own or _used & {'eval', 'exec', 'globals', 'vars', 'locals', "
    "'dir'}:\n"
    "    _modules = ('string re datetime collections heapq bisect copy math random statistics '\n"
    "                'itertools functools operator io sys json builtins typing').split()\n"
    "    exec(''.join('from %s import *\\n' % m for m in _modules) +\n"
    "         ''.join('import %s\\n' % m for m in _modules if m not in ('builtins', 'typing')), "
    "_names)\n";

static const char run_it[] = "try:\n"
                             "    exec(_code, _names)\n"
                             "except SystemExit:\n"
                             "    pass\n";

static const char call_it[] = "import json as _json\n"
                              "_args = _json.loads(_args)\n"
                              "_out = _os.dup(1)\n"
                              "_os.dup2(2, 1)\n"
                              "_names['__name__'] = 'solution'\n"
                              "_before = _names.get(_fn)\n"
                              "exec(_code, _names)\n"
                              "if 'class Solution' in _src:\n"
                              "    _call = getattr(_names['Solution'](), _fn)\n"
                              "else:\n"
                              "    _call = _names.get(_fn)\n"
                              "    if _call is _before:\n"
                              "        raise NameError('no function %s is defined' % _fn)\n"
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
    vl_buf_str(out, "\n_args = ");
    vl_json_put_str(out, args->s, args->n);
    vl_buf_ch(out, '\n');
    vl_buf_str(out, call_it);
}
