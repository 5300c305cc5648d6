"""A spider that goes through leased proxies: scrapy runspider spider.py -a urls=URL,URL."""

import scrapy


class Pages(scrapy.Spider):
    name = "pages"
    custom_settings = {"DOWNLOADER_MIDDLEWARES": {"shoal.LeaseMiddleware": 740}, "SHOAL_FLEET": "crawl/news"}

    def __init__(self, urls, **kwargs):
        super().__init__(**kwargs)
        self.start_urls = urls.split(",")

    def parse(self, response):
        yield {"url": response.url, "status": response.status, "lease": response.meta["shoal_lease"]}
