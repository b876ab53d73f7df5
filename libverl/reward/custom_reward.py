"""Calls a verl reward function for the rows that verl-reward sends (verl-reward-protocol(7)).

    python3 custom_reward.py FILE FUNCTION rows|batch KWARGS

FILE and FUNCTION are custom_reward_function.path and .name, KWARGS the JSON object of
reward_kwargs, which wins over what a row gives, as in verl. With `rows` the function scores one row
a call; a coroutine function has all rows that were sent under way at once. With `batch` a line holds
all rows, and one call scores them. What the user's code prints goes to standard error: descriptor 1
is pointed there before its first line runs.
"""

import importlib
import importlib.machinery
import importlib.util
import inspect
import json
import os
import sys
import traceback


def print_traceback(error):
    """From the user's code on."""
    frames = error.__traceback__
    while frames.tb_next and frames.tb_frame.f_code.co_filename.startswith((__file__, "<frozen")):
        frames = frames.tb_next
    traceback.print_exception(type(error), error, frames)


def location(error, path):
    """Where in the user's file the exception passed, else where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    frames = [f for f in frames if f.filename == path] or frames
    if frames and frames[-1].filename == __file__:
        return ""
    return " (%s:%s)" % (os.path.basename(frames[-1].filename), frames[-1].lineno) if frames else ""


def reason(error, path):
    text = traceback.format_exception_only(type(error), error)[-1].strip()
    if isinstance(error, SyntaxError) and error.filename:
        return "%s (%s:%s)" % (text, os.path.basename(error.filename), error.lineno)
    return text + location(error, path)


def plain(x):
    """x as JSON can hold it: scalars and arrays of numpy and torch become numbers and lists."""
    if x is None or isinstance(x, (bool, int, str)):
        return x
    if isinstance(x, float):
        return x if x - x == 0 else "NaN" if x != x else "Infinity" if x > 0 else "-Infinity"
    if isinstance(x, dict):
        return {str(k): plain(v) for k, v in x.items()}
    if isinstance(x, (list, tuple, set, frozenset)):
        return [plain(v) for v in x]
    return plain(x.tolist()) if hasattr(x, "tolist") else str(x)


class Caller:
    def __init__(self, path, name, kwargs, answers):
        self.path, self.name, self.kwargs, self.answers = path, name, kwargs, answers
        self.told = False  # one traceback a process is enough
        self.pid = os.getpid()
        self.loop = None

    def text(self, answer):
        try:
            return json.dumps(answer, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            pass
        try:
            return json.dumps(plain(answer), allow_nan=False)
        except Exception as error:
            what = traceback.format_exception_only(type(error), error)[-1].strip()
            return json.dumps({"id": answer["id"],
                               "error": "%s returned what JSON cannot hold: %s" % (self.name, what)})

    def put(self, answer):
        text = self.text(answer)
        self.end_fork(0)
        self.answers.write(text + "\n")
        self.answers.flush()

    def end_fork(self, status):
        """A child that the user's code forked and that came back to us: the row is its parent's."""
        if os.getpid() != self.pid:
            sys.stdout.flush()
            os._exit(status)

    def fatal(self, status, text):
        """No row can be scored."""
        self.put({"fatal": text, "status": status})
        sys.exit(status)

    def load(self):
        try:
            if self.path.startswith("pkg://"):
                module = importlib.import_module(self.path[len("pkg://"):])
                self.path = getattr(module, "__file__", self.path)
            else:
                sys.path.append(os.path.dirname(os.path.abspath(self.path)))
                spec = importlib.util.spec_from_loader(
                    "custom_module",
                    importlib.machinery.SourceFileLoader("custom_module", self.path))
                module = importlib.util.module_from_spec(spec)
                sys.modules["custom_module"] = module
                spec.loader.exec_module(module)
        except BaseException as error:
            print_traceback(error)
            self.fatal(65, "%s cannot be loaded: %s" % (self.path, reason(error, self.path)))
        function = getattr(module, self.name, None)
        if not callable(function):
            names = [k for k, v in vars(module).items()
                     if inspect.isfunction(v) and not k.startswith("_")]
            self.fatal(64, "%s has no function %s; %s" % (
                self.path, self.name, "it has " + ", ".join(names) if names else "it has none"))
        self.function = function

    def check_arguments(self, batch):
        """What a call by keyword with these names would refuse for every row."""
        names = ["data_source", "solution_str", "ground_truth", "extra_info"]
        names = [n + "s" for n in names] if batch else names
        try:
            signature = inspect.signature(self.function, follow_wrapped=False)
            given = dict.fromkeys(names + list(self.kwargs))
            signature.bind(**given)
        except ValueError:  # a builtin
            return
        except TypeError as error:
            key = "custom_reward_function.reward_kwargs."
            kinds = [p.kind for p in signature.parameters.values()]
            missing = [n for n, p in signature.parameters.items()
                       if p.default is p.empty and n not in given
                       and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
            unknown = [n for n in given if n not in signature.parameters
                       and inspect.Parameter.VAR_KEYWORD not in kinds]
            if missing:
                hint = "give it as %s%s=VALUE" % (key, missing[0])
            elif unknown and unknown[0] in self.kwargs:
                hint = "leave out %s%s, or let it take **kwargs" % (key, unknown[0])
            else:
                hint = "it is called by keyword with " + ", ".join(names)
            self.fatal(64, "%s: %s%s: %s; %s" % (self.path, self.name, signature, error, hint))

    def failure(self, error):
        if isinstance(error, SystemExit):
            self.end_fork(error.code if isinstance(error.code, int) else error.code is not None)
        if not self.told:
            self.told = True
            print_traceback(error)
        self.end_fork(1)
        return {"error": reason(error, self.path)}

    def finished(self, result):
        """Awaits what a plain function gave that is to be awaited (a decorated coroutine function)."""
        if not hasattr(result, "__await__"):
            return result
        if not self.loop:
            import asyncio
            self.loop = asyncio.new_event_loop()
        return self.loop.run_until_complete(awaited(result))

    def arguments(self, row):
        extra = row.get("extra_info")
        extra = extra if isinstance(extra, dict) else {}
        extra["num_turns"] = row.get("num_turns")
        extra["rollout_reward_scores"] = row.get("reward_scores") or {}
        return dict(data_source=row.get("data_source"), solution_str=row["solution_str"],
                    ground_truth=row.get("ground_truth"), extra_info=extra)

    def score(self, result):
        """One row's result as the members of an answer."""
        if isinstance(result, dict):
            return {str(k): v for k, v in result.items()}
        if hasattr(result, "tolist"):
            result = result.tolist()
        if isinstance(result, (list, tuple)) and result:
            result = result[0]
        if isinstance(result, (bool, int, float)):
            return {"score": result}
        return {"error": "%s returned %.60r, not a number, a bool or a dict with score"
                         % (self.name, result)}

    def call(self, row):
        try:
            return self.score(self.finished(self.function(**{**self.arguments(row), **self.kwargs})))
        except BaseException as error:
            return self.failure(error)

    async def call_async(self, row):
        try:
            return self.score(await self.function(**{**self.arguments(row), **self.kwargs}))
        except (Exception, SystemExit, KeyboardInterrupt) as error:  # a cancelled row is asked again
            return self.failure(error)

    def call_batch(self, rows):
        rows = [self.arguments(row) for row in rows]
        lists = {name + "s": [row[name] for row in rows]
                 for name in ("data_source", "solution_str", "ground_truth", "extra_info")}
        try:
            result = self.finished(self.function(**{**lists, **self.kwargs}))
            if hasattr(result, "tolist"):
                result = result.tolist()
            if not isinstance(result, (list, tuple)):
                return {"error": "%s returned %.60r; with reward_manager.name=batch it is called with "
                                 "lists and returns a list" % (self.name, result)}
            if len(result) != len(rows):
                return {"error": "%s returned %d scores for %d rows"
                                 % (self.name, len(result), len(rows))}
            return {"scores": [self.score(r) for r in result]}
        except BaseException as error:
            return self.failure(error)


async def awaited(x):
    return await x


def serve_async(caller, lines):
    """Calls start as rows come; answers keep the rows' order, which the protocol asks for."""
    import asyncio
    import threading

    async def run():
        loop, queue, calls = asyncio.get_running_loop(), asyncio.Queue(), asyncio.Queue()

        def read():
            for line in lines:
                loop.call_soon_threadsafe(queue.put_nowait, line)
            loop.call_soon_threadsafe(queue.put_nowait, None)

        async def start():
            while True:
                line = await queue.get()
                row = json.loads(line) if line else None
                await calls.put((row, row and asyncio.ensure_future(caller.call_async(row))))

        threading.Thread(target=read, daemon=True).start()
        starter = asyncio.ensure_future(start())
        while True:
            row, call = await calls.get()
            if row is None:
                break
            caller.put({**await call, "id": row["id"]})
        starter.cancel()

    asyncio.run(run())


def main():
    path, name, form, kwargs = sys.argv[1:]
    lines = os.fdopen(os.dup(0), encoding="utf-8", errors="surrogatepass", newline="\n")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdout.reconfigure(line_buffering=True)
    sys.path[0] = ""  # the user's directory instead of this file's
    sys.argv = [path]
    caller = Caller(path, name, json.loads(kwargs), answers)
    caller.load()
    caller.check_arguments(form == "batch")
    caller.put({"ready": True})
    if form == "batch":
        for line in lines:
            row = json.loads(line)
            caller.put({**caller.call_batch(row["rows"]), "id": row["id"]})
    elif (inspect.iscoroutinefunction(caller.function) or
          inspect.iscoroutinefunction(getattr(caller.function, "__call__", None))):
        serve_async(caller, lines)
    else:
        for line in lines:
            row = json.loads(line)
            caller.put({**caller.call(row), "id": row["id"]})


if __name__ == "__main__":  # a process that multiprocessing spawns imports this file
    main()
