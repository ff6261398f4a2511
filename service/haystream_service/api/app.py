"""The application: its routes, and what stands before them. Nothing is connected here."""

from collections.abc import Collection
from importlib.metadata import version

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Match

from haystream.errors import Rejected
from haystream_service.api import beliefs, claims, exports, items, openapi, queries, rankings, verdicts
from haystream_service.api.access import OPEN, ROUTES
from haystream_service.api.desk import Desk
from haystream_service.api.edge import Edge, Guarded
from haystream_service.api.guards import CallerOf, Gate, answer, of_parameters
from haystream_service.api.messages import Me
from haystream_service.api.problems import ApiCode, Problem
from haystream_service.metrics import ApiMetrics

POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
ASKED = ("Authorization", "Content-Type", "If-Match", "If-None-Match", "Last-Event-ID", "X-Correlation-Id")
"""Headers that a page of another origin may send."""
ANSWERED = ("ETag", "Retry-After", "X-Correlation-Id")
"""Headers that it may read."""
router = APIRouter()


@router.get("/healthz", response_class=PlainTextResponse, tags=["service"])
async def healthz() -> str:
    """Whether the process is well."""
    return "ok\n"


@router.get("/openapi.json", tags=["service"])
async def openapi_document(request: Request, caller: CallerOf) -> JSONResponse:
    """The document that describes all of this."""
    return JSONResponse(request.app.openapi())


@router.get("/docs", response_class=HTMLResponse, tags=["service"])
async def docs(request: Request, caller: CallerOf) -> HTMLResponse:
    """The same to be read; a browser asks for the token as a password, with any name."""
    return HTMLResponse(openapi.page(request.app.openapi()), headers={"Content-Security-Policy": POLICY})


@router.get("/v1/me", response_model=Me, tags=["service"])
async def show_me(caller: CallerOf) -> Response:
    """Whoever the token is of, and what it may do."""
    return answer(
        Me(
            subject=caller.subject,
            roles=tuple(sorted(caller.roles)),
            collections=tuple(sorted(caller.collections)),
        )
    )


def build_app(desk: Desk, gate: Gate, metrics: ApiMetrics, *, origins: Collection[str] = ()) -> FastAPI:
    """The application. Raises RuntimeError where a route is not in the table of who may do what."""
    app = FastAPI(
        title="haystream",
        version=version("haystream"),
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # it would lead to http, also where a proxy takes https
    )
    app.state.desk, app.state.gate, app.state.metrics = desk, gate, metrics
    for routes in (
        router,
        queries.router,
        rankings.router,
        claims.router,
        verdicts.router,
        items.router,
        beliefs.router,
        exports.router,
    ):
        app.router.routes.extend(routes.routes)  # themselves: what is included is wrapped, and not listed
    check_routes(app)
    openapi.install(app)
    app.add_exception_handler(Problem, _problem)
    app.add_exception_handler(Rejected, _rejected)
    app.add_exception_handler(RequestValidationError, _parameters)
    app.add_exception_handler(HTTPException, _http)
    app.add_middleware(Guarded, metrics=metrics, origins=origins, item_bytes=desk.body_bytes)
    if origins:  # around that: a page is to read what it answers by itself, too
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(origins),
            allow_methods=["GET", "PUT", "PATCH", "POST", "DELETE"],
            allow_headers=ASKED,
            expose_headers=ANSWERED,
        )
    app.add_middleware(Edge, metrics=metrics)  # preflights are requests, too
    return app


def check_routes(app: FastAPI) -> None:
    """Raise RuntimeError unless the application's routes are those of the table, each."""
    there = set(operations(app))
    wanted = {*ROUTES, *OPEN}
    if there != wanted:
        raise RuntimeError(f"routes and their table differ in {sorted(there ^ wanted)}")


def operations(app: FastAPI) -> list[str]:
    """Method and path of every route."""
    return [
        f"{method} {route.path}"
        for route in app.routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    ]


def _problem(_: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return error.response()


def _rejected(_: Request, error: Exception) -> Response:
    assert isinstance(error, Rejected)
    return Problem.of(error).response()


def _parameters(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return of_parameters(error).response()


def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code != 405:
        return Problem(
            ApiCode.NOT_FOUND, f"there is nothing here: {error.detail}", headers=error.headers
        ).response()
    allowed = sorted(_methods(request))
    detail = f"this address takes {', '.join(allowed)}"
    return Problem(ApiCode.METHOD_NOT_ALLOWED, detail, headers={"Allow": ", ".join(allowed)}).response()


def _methods(request: Request) -> set[str]:
    """What may be asked of the address: each of its methods is a route of its own."""
    routes: list[APIRoute] = [route for route in request.app.routes if isinstance(route, APIRoute)]
    there = [route.methods or set() for route in routes if route.matches(request.scope)[0] is not Match.NONE]
    methods = set[str]().union(*there)
    return methods | {"HEAD"} if "GET" in methods else methods
