// node lease.mjs URL: opens a page in Chromium through a leased proxy, with Playwright.
// NODE_EXTRA_CA_CERTS=$SHOAL_CA makes Node trust the hub.
import { chromium } from "playwright-core";

async function call(method, path, body) {
  for (;;) {
    const answer = await fetch(process.env.SHOAL + path, {
      method,
      headers: { Authorization: "Bearer " + process.env.SHOAL_TOKEN },
      body: JSON.stringify(body ?? {}),
    });
    const found = await answer.json();
    if (answer.ok) return found;
    const wait = Number(answer.headers.get("Retry-After"));
    if (!wait) throw new Error(`${found.reason}: ${found.message}`);
    await new Promise((resolve) => setTimeout(resolve, (wait + Math.random()) * 1000));
  }
}

// Runs work(lease), renews meanwhile, and releases in the end.
async function leased(wanted, work) {
  const [lease] = (await call("POST", "/v1/leases", wanted)).leases;
  const path = "/v1/leases/" + lease.leaseId;
  let timer;
  const renew = (after) => {
    timer = setTimeout(async () => {
      try {
        renew((await call("POST", path + ":renew")).renewAfterSeconds ?? 1);
      } catch (error) {
        console.error(error.message); // the lease has ended; open tunnels go on
      }
    }, Math.max(1, after * (0.8 + 0.2 * Math.random())) * 1000);
  };
  renew(lease.renewAfterSeconds);
  try {
    return await work(lease);
  } finally {
    clearTimeout(timer);
    await call("DELETE", path);
  }
}

const url = process.argv[2];
const args = (process.env.CHROMIUM_ARGS ?? "").split(" ").filter(Boolean); // --no-sandbox, for root in a container
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args });
try {
  await leased({ fleet: "crawl/news", target: new URL(url).hostname, ttl: "600s" }, async (lease) => {
    // lease.playwright is { server, username, password }: credentials in a proxy's URL are not read.
    const context = await browser.newContext({ proxy: lease.playwright });
    const page = await context.newPage();
    let kind = "PROXY_ERROR";
    try {
      const answer = await page.goto(url);
      const status = answer.status();
      kind = { 403: "BLOCKED", 429: "RATE_LIMITED" }[status] ?? (status >= 500 ? "TARGET_ERROR" : "OK");
      console.log(status, await page.title(), "through", lease.exit);
    } finally {
      await call("POST", `/v1/leases/${lease.leaseId}:report`, { outcome: { kind } });
      await context.close();
    }
  });
} finally {
  await browser.close();
}
