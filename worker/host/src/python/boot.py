"""Starts the Python side of a host: import scopes, in-memory modules, loading of packages.

Each package of a group is imported under a private name, ``tools/calc.calc``, and gets a copy of the
builtins whose ``__import__`` looks into the package's own folders first. So two packages may both
have ``utils/common.py``, neither sees the other's, and nothing is put on ``sys.path``.
"""

import builtins
import importlib
import os
import sys
import threading  # noqa: F401  (first imported here, so that it takes the main thread for its own)
import time
from importlib._bootstrap import _handle_fromlist, _load
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
)

import _ramen_native as native

real_import = builtins.__import__
real_import_module = importlib.import_module

SOURCES = {}
SCOPES = {}
SCOPES_BY_BUILTINS = {}
MISSING = object()
BUILT_IN = "ramen_runtime"


class MemoryLoader:
    """Modules whose source is part of the host program."""

    def __init__(self, name, source, package):
        self.name, self.source, self.package = name, source, package

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        code = compile(self.source, f"<{self.name}>", "exec", dont_inherit=True)
        exec(code, module.__dict__)

    def get_source(self, fullname):
        return self.source

    def is_package(self, fullname):
        return self.package


class ScopedLoader(SourceFileLoader):
    """Compiles the source itself, whatever ``__pycache__`` says, and sets the scope's builtins.

    All files of a layer have the same time stamp, so a stale ``.pyc`` could pass for a fresh one.
    """

    def __init__(self, fullname, path, scope):
        super().__init__(fullname, path)
        self.scope = scope

    def get_code(self, fullname):
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)

    def exec_module(self, module):
        code = self.get_code(module.__name__)
        module.__dict__["__builtins__"] = self.scope.builtins
        exec(code, module.__dict__)


class Finder:
    """First on ``sys.meta_path``: answers for private names and for the built-in modules only."""

    @staticmethod
    def find_spec(fullname, path=None, target=None):
        source = SOURCES.get(fullname)
        if source is not None:
            package = fullname in (BUILT_IN, "_ramen")
            loader = MemoryLoader(fullname, source, package)
            spec = ModuleSpec(fullname, loader, origin="built-in", is_package=package)
            return spec
        scope = SCOPES.get(fullname.partition(".")[0])
        if scope is None or path is None:
            return None
        namespace = None
        for entry in path:
            spec = scope.finder(entry).find_spec(fullname)
            if spec is None:
                continue
            if spec.loader is not None:
                return spec
            namespace = namespace or spec
        return namespace


class Scope:
    """What one package sees under plain names."""

    def __init__(self, kind, name, folder):
        self.name = name
        self.folder = folder
        self.root = f"{kind}s/{name}"
        self.main = f"{self.root}.{'__main__' if name == 'utils' else name}"
        self.has_utils = os.path.isdir(os.path.join(folder, "utils"))
        self.finders = {}
        self.tops = {}
        self.names = {}
        self.builtins = dict(vars(builtins))
        self.builtins["__import__"] = self.import_
        SCOPES[self.root] = self
        SCOPES_BY_BUILTINS[id(self.builtins)] = self
        module = type(sys)(self.root)
        module.__spec__ = ModuleSpec(self.root, None, is_package=True)
        module.__spec__.submodule_search_locations.append(folder)
        module.__path__ = [folder]
        module.__package__ = self.root
        sys.modules[self.root] = module

    def finder(self, folder):
        found = self.finders.get(folder)
        if found is None:
            # No loader for a lone .pyc: what is served is what can be read in the repo.
            found = self.finders[folder] = FileFinder(
                folder,
                (ExtensionFileLoader, EXTENSION_SUFFIXES),
                (lambda name, path: ScopedLoader(name, path, self), SOURCE_SUFFIXES),
            )
        return found

    def load_main(self):
        path = os.path.join(self.folder, self.name + ".py")
        loader = ScopedLoader(self.main, path, self)
        spec = ModuleSpec(self.main, loader, origin=path)
        spec.has_location = True
        return _load(spec)

    def import_(self, name, globals=None, locals=None, fromlist=(), level=0):
        if level:
            return real_import(name, globals, locals, fromlist, level)
        target = self.names.get(name, MISSING)
        if target is MISSING:
            target = self.private_name(name)
        if target is None:
            return real_import(name, globals, locals, fromlist, 0)
        module = real_import_module(target)
        if not fromlist:
            return sys.modules[self.tops[name.partition(".")[0]]]
        if hasattr(module, "__path__"):
            return _handle_fromlist(module, fromlist, real_import_module)
        return module

    def private_name(self, name):
        """The unique name behind a plain one; ``None`` when it is not this package's."""
        top, dot, rest = name.partition(".")
        if top in self.tops:
            found = self.tops[top]
        else:
            found = self.tops[top] = self.locate(top)
        target = self.names[name] = None if found is None else found + dot + rest
        return target

    def locate(self, top):
        if top == BUILT_IN or not top:
            return None
        utils = os.path.join(self.folder, "utils")
        beside = []
        if self.has_utils:
            spec = self.finder(utils).find_spec(f"{self.root}.utils.{top}")
            if spec is not None:
                if spec.loader is not None:
                    return spec.name
                beside.append(spec.name)
            if top == "utils":
                return f"{self.root}.utils"
        if top != self.name:
            spec = self.finder(self.folder).find_spec(f"{self.root}.{top}")
            if spec is not None:
                if spec.loader is not None:
                    return spec.name
                beside.append(spec.name)
        elif self.main in sys.modules:
            beside.append(self.main)
        # A plain folder and the package's own name yield to whatever is installed.
        if beside and not installed(top):
            return beside[0]
        return None


def installed(top):
    if top in sys.modules or top in sys.builtin_module_names:
        return True
    for finder in sys.meta_path:
        if finder is not Finder and finder.find_spec(top, None, None) is not None:
            return True
    return False


def import_module(name, package=None):
    """Import a module; inside a package of the group also one of its own, by its plain name."""
    if name and name[0] != ".":
        scope = calling_scope()
        if scope is not None:
            target = scope.private_name(name)
            if target is not None:
                return real_import_module(target)
    return real_import_module(name, package)


def calling_scope():
    frame = sys._getframe(2)
    for _ in range(64):
        if frame is None:
            return None
        scope = SCOPES_BY_BUILTINS.get(id(frame.f_builtins))
        if scope is not None:
            return scope
        frame = frame.f_back
    return None


def start(sources):
    """Once per process, before any user code."""
    SOURCES.update(sources)
    sys.meta_path.insert(0, Finder)
    importlib.import_module = import_module
    sys.modules[BUILT_IN + "._backend"] = native
    import ramen_runtime

    sys.modules["ramen_runtime"]._backend = native
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.reconfigure(line_buffering=True, errors="backslashreplace")
    os.register_at_fork(after_in_child=native.forked)
    # `site` is not imported, and `exit()` must not close stdin.
    builtins.exit = builtins.quit = leave
    for name in ("chdir", "fchdir"):
        setattr(os, name, watched(getattr(os, name)))
    return ramen_runtime.Interrupted, sys.modules["ramen_runtime.content"].Block


def leave(code=None):
    """Leave the call: raises SystemExit."""
    raise SystemExit(code)


def watched(change):
    def wrapper(path):
        native.directory_changed()
        return change(path)

    wrapper.__name__ = wrapper.__qualname__ = change.__name__
    wrapper.__doc__ = change.__doc__
    return wrapper


def prepare(env, deps, seconds):
    """The process-wide part of a load."""
    sys.setswitchinterval(seconds)
    os.environ.update(env)
    if deps is not None:
        import site

        # Also runs the layer's .pth files, which plain insertion would not.
        site.addsitedir(deps)


def warnings(deps):
    found = []
    if deps is not None:
        for name in (BUILT_IN, BUILT_IN + ".py"):
            if os.path.exists(os.path.join(deps, name)):
                found.append(
                    f"requirements install a module named {BUILT_IN}: the built-in one is used"
                )
                break
    for scope in SCOPES.values():
        for folder in ("", "utils"):
            for name in (BUILT_IN, BUILT_IN + ".py"):
                if os.path.exists(os.path.join(scope.folder, folder, name)):
                    place = "/".join(part for part in (scope.root, folder, name) if part)
                    found.append(f"{place} is hidden by the built-in module {BUILT_IN}")
    return found


def load(kind, name, folder, callable_name, params, required):
    """Import one package: ``(callable, async, reason, message, milliseconds)``."""
    began = time.monotonic()
    function, is_async, reason, message = None, False, None, None
    try:
        scope = Scope(kind, name, folder)
        module = scope.load_main()
    except BaseException as error:
        from _ramen.results import describe

        reason = "ImportFailed"
        message = describe(error, f"{kind}s/{name}", None) + place(error, folder)
    else:
        function = getattr(module, callable_name, MISSING)
        if function is MISSING:
            reason = "CallableMissing"
            message = f"{name}.py does not define {callable_name}"
        elif not callable(function):
            reason = "CallableNotCallable"
            message = f"{callable_name} in {name}.py is {article(function)}, not a function"
        else:
            try:
                is_async, fault = check(function, callable_name, params, required)
            except BaseException as error:
                from _ramen.results import describe

                fault = describe(error, scope.root, None)
            if fault is not None:
                reason, message = "SignatureMismatch", fault
    if reason is not None:
        function = None
    return function, is_async, reason, message, int((time.monotonic() - began) * 1000)


def place(error, folder):
    """Where in the package an import failed, as `` (utils/helper.py, line 3)``: the author's only way to the line."""
    if isinstance(error, SyntaxError):  # its text has the file and the line
        return ""
    found = raised_at(error.__traceback__, folder)
    return f" ({found})" if found else ""


def raised_at(trace, folder):
    """The last line of the package on an exception's way, as ``utils/helper.py, line 3``: names of the author's own files
    and nothing that a caller sent."""
    found = ""
    while trace is not None:
        path = trace.tb_frame.f_code.co_filename
        if path.startswith(folder + os.sep):
            found = f"{os.path.relpath(path, folder)}, line {trace.tb_lineno}"
        trace = trace.tb_next
    return found


def article(value):
    name = type(value).__name__
    return f"{'an' if name[:1] in 'aeiou' else 'a'} {name}"


FUNCTION = type(article)
VARARGS, VARKEYWORDS, COROUTINE, ASYNC_GENERATOR = 0x04, 0x08, 0x80, 0x200


def check(function, label, params, required):
    """``(async, fault)`` of a callable that is called with ``params`` by name."""
    if type(function) is FUNCTION and not hasattr(function, "__wrapped__"):
        code = function.__code__
        count = code.co_argcount
        names = code.co_varnames[: count + code.co_kwonlyargcount]
        defaults = len(function.__defaults__ or ())
        optional = set(code.co_varnames[count - defaults : count]) if defaults else set()
        optional.update(function.__kwdefaults__ or ())
        positional = code.co_varnames[: code.co_posonlyargcount]
        takes_any = bool(code.co_flags & VARKEYWORDS)
        is_async = bool(code.co_flags & COROUTINE)
    else:
        # Heavy, and most groups never need it.
        import inspect

        target = function if inspect.isroutine(function) else getattr(function, "__call__", function)
        is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(target)
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):
            # Some C functions do not tell.
            return is_async, None
        names, optional, positional, takes_any = [], set(), [], False
        for parameter in signature.parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                takes_any = True
            elif parameter.kind is not parameter.VAR_POSITIONAL:
                names.append(parameter.name)
                if parameter.kind is parameter.POSITIONAL_ONLY:
                    positional.append(parameter.name)
                if parameter.default is not parameter.empty:
                    optional.add(parameter.name)
    faults = []
    for name in positional:
        if name in params or name not in optional:
            faults.append(f"parameter {name} is positional-only, but arguments are given by name")
    for name in params:
        if name not in names and not takes_any:
            faults.append(f"input has {name}, which {label} does not take")
    for name in names:
        if name not in params and name not in optional and name not in positional:
            faults.append(f"{label} requires {name}, which input does not have")
    return is_async, "; ".join(faults) or None
