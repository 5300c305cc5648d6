"""A downloader middleware for Scrapy that sends requests through proxies leased from Shoal, one lease for each host at a time.

DOWNLOADER_MIDDLEWARES = {"shoal.LeaseMiddleware": 740}  # before HttpProxyMiddleware (750), which sends the credentials
SHOAL_FLEET = "crawl/news"
"""

import os, random, threading, time
from urllib.parse import urlsplit

import requests
from scrapy import signals
from scrapy.core.downloader.handlers.http11 import TunnelError
from scrapy.downloadermiddlewares.retry import get_retry_request
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import DeferredLock
from twisted.internet.error import ConnectError, TimeoutError
from twisted.internet.task import LoopingCall
from twisted.internet.threads import deferToThread


class LeaseMiddleware:
    @classmethod
    def from_crawler(cls, crawler):
        middleware = cls(crawler)
        crawler.signals.connect(middleware.opened, signals.spider_opened)
        crawler.signals.connect(middleware.closed, signals.spider_closed)
        return middleware

    def __init__(self, crawler):
        self.crawler = crawler
        self.leases, self.locks = {}, {}  # by host
        self.local = threading.local()

    # The hub is called in threads, with requests: Scrapy's own downloader does not check the hub's certificate.
    def call(self, method, path, body=None, patience=120):
        if not hasattr(self.local, "hub"):
            self.local.hub = requests.Session()
            self.local.hub.trust_env = False
            self.local.hub.verify = os.environ.get("SHOAL_CA", True)
            self.local.hub.headers["Authorization"] = "Bearer " + os.environ["SHOAL_TOKEN"]
        until = time.monotonic() + patience
        while True:
            answer = self.local.hub.request(method, os.environ["SHOAL"] + path, json=body or {}, timeout=30)
            if answer.ok:
                return answer.json()
            wait = int(answer.headers.get("Retry-After", "0"))
            if not wait or time.monotonic() + wait > until:
                raise RuntimeError(answer.json().get("reason", "") + ": " + answer.json()["message"])
            time.sleep(wait + random.random())

    def acquire(self, host):
        wanted = {"fleet": self.crawler.settings.get("SHOAL_FLEET"), "target": host}
        lease = self.call("POST", "/v1/leases", wanted)["leases"][0]
        return {**lease, "renewAt": time.monotonic() + 0.9 * lease["renewAfterSeconds"]}

    def opened(self):
        self.renewing = LoopingCall(self.renew)
        self.renewing.start(1, now=False)

    def renew(self):
        for host, lease in self.leases.items():
            if time.monotonic() > lease["renewAt"]:
                lease["renewAt"] = float("inf")  # until the answer
                deferToThread(self.renewed, lease).addErrback(lambda _, host=host: self.leases.pop(host, None))

    def renewed(self, lease):
        answer = self.call("POST", "/v1/leases/" + lease["leaseId"] + ":renew")
        lease.update(limits=answer.get("limits"), renewAt=time.monotonic() + max(1, 0.9 * answer.get("renewAfterSeconds", 1)))

    async def process_request(self, request, spider):
        host = urlsplit(request.url).hostname
        lock = self.locks.setdefault(host, DeferredLock())
        await maybe_deferred_to_future(lock.acquire())
        try:
            if host not in self.leases:
                self.leases[host] = await maybe_deferred_to_future(deferToThread(self.acquire, host))
        finally:
            lock.release()
        lease = self.leases[host]
        request.meta["proxy"] = lease["proxyUrl"]
        request.meta["shoal_lease"] = lease["leaseId"]
        request.meta["download_slot"] = lease["leaseId"]  # concurrency and delay are counted for each lease

    async def process_response(self, request, response, spider):
        kind = {403: "BLOCKED", 407: "PROXY_ERROR", 429: "RATE_LIMITED"}.get(response.status, "TARGET_ERROR" if response.status >= 500 else "OK")
        await self.report(request, kind)
        if kind in ("OK", "TARGET_ERROR"):
            return response
        # Through another lease, as often as RETRY_TIMES says; then the answer is what it is.
        return get_retry_request(request, spider=spider, reason=kind.lower()) or response

    async def process_exception(self, request, exception, spider):
        if isinstance(exception, (TunnelError, ConnectError)):
            await self.report(request, "PROXY_ERROR")
        elif isinstance(exception, TimeoutError):
            await self.report(request, "TIMEOUT")
        # RetryMiddleware does the rest.

    async def report(self, request, kind):
        lease, host = request.meta.get("shoal_lease"), urlsplit(request.url).hostname
        if lease is None:
            return
        outcome = {"target": host, "outcome": {"kind": kind}}
        await maybe_deferred_to_future(deferToThread(self.call, "POST", "/v1/leases/" + lease + ":report", outcome))
        held = self.leases.get(host)
        if held is None or held["leaseId"] != lease:
            return
        if kind in ("BLOCKED", "RATE_LIMITED", "PROXY_ERROR"):
            del self.leases[host]  # the next request leases anew
            await maybe_deferred_to_future(deferToThread(self.call, "DELETE", "/v1/leases/" + lease))
        elif held.get("limits") and lease in self.crawler.engine.downloader.slots:
            slot, limits = self.crawler.engine.downloader.slots[lease], held["limits"]
            slot.delay = float(limits.get("minInterval", "0s").rstrip("s"))
            slot.concurrency = limits.get("maxConcurrency") or slot.concurrency

    def closed(self):
        """Releases what is held; Scrapy waits for it."""
        self.renewing.stop()
        held, self.leases = list(self.leases.values()), {}
        return deferToThread(lambda: [self.call("DELETE", "/v1/leases/" + lease["leaseId"]) for lease in held])
