"""aiohttp_lease.py URL…: fetches pages of one host through a leased proxy, as many at a time as it may, with aiohttp."""

import asyncio, os, random, ssl, sys
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import aiohttp


class Hub:
    """The lease API."""

    def __init__(self, session):
        self.session = session
        self.ssl = ssl.create_default_context(cafile=os.environ.get("SHOAL_CA"))
        self.headers = {"Authorization": "Bearer " + os.environ["SHOAL_TOKEN"]}

    async def call(self, method, path, body=None):
        """Calls, and comes back when the hub says so."""
        while True:
            async with self.session.request(
                method, os.environ["SHOAL"] + path, json=body or {}, headers=self.headers, ssl=self.ssl
            ) as answer:
                found = await answer.json()
                if answer.ok:
                    return found
                if answer.status not in (429, 503) or "Retry-After" not in answer.headers:
                    raise RuntimeError(found.get("reason", "") + ": " + found["message"])
            await asyncio.sleep(int(answer.headers["Retry-After"]) + random.random())

    @asynccontextmanager
    async def leased(self, **wanted):
        """A lease that is renewed in the background and released in the end."""
        lease = (await self.call("POST", "/v1/leases", wanted))["leases"][0]
        path = "/v1/leases/" + lease["leaseId"]

        async def renew(after=lease["renewAfterSeconds"]):
            while True:
                await asyncio.sleep(after * random.uniform(0.8, 1))
                answer = await self.call("POST", path + ":renew")
                lease["limits"], after = answer.get("limits", {}), max(1, answer.get("renewAfterSeconds", 1))

        renewing = asyncio.create_task(renew())
        try:
            yield lease
        finally:
            renewing.cancel()
            # Shielded: who is cancelled releases all the same.
            await asyncio.shield(self.call("DELETE", path))


async def fetch(session, hub, lease, url):
    try:
        async with session.get(url, proxy=lease["proxyUrl"], timeout=aiohttp.ClientTimeout(60)) as page:
            await page.read()
            kind = {403: "BLOCKED", 429: "RATE_LIMITED"}.get(page.status, "TARGET_ERROR" if page.status >= 500 else "OK")
            print(page.status, "through", lease["exit"])
    except (aiohttp.ClientProxyConnectionError, aiohttp.ClientHttpProxyError) as error:
        kind = "PROXY_ERROR"  # 407 and other answers to CONNECT are a ClientHttpProxyError
        print(error, file=sys.stderr)
    except asyncio.TimeoutError:
        kind = "TIMEOUT"
    answer = await hub.call("POST", "/v1/leases/" + lease["leaseId"] + ":report", {"outcome": {"kind": kind}})
    lease["limits"] = answer.get("limits", {})  # what the target tolerates, as far as is known
    if "cooldown" in answer:
        lease["rests"] = True


async def main(urls):
    async with aiohttp.ClientSession() as session:
        hub = Hub(session)
        async with hub.leased(fleet="crawl/news", target=urlsplit(urls[0]).hostname, ttl="600s") as lease:
            fetches = set()
            for url in urls:
                limits = lease.get("limits", {})
                while len(fetches) >= limits.get("maxConcurrency", 10):
                    _, fetches = await asyncio.wait(fetches, return_when=asyncio.FIRST_COMPLETED)
                if "rests" in lease:
                    break  # lease again to go on by another exit
                fetches.add(asyncio.create_task(fetch(session, hub, lease, url)))
                if url != urls[-1]:
                    await asyncio.sleep(float(limits.get("minInterval", "0s")[:-1]))
            await asyncio.gather(*fetches)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
