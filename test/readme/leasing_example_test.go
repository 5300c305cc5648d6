package readme_test

import (
	"context"
	"fmt"
	"net/http"

	"github.com/shoal-dev/shoal/proto/leaseclient"
)

// The crawler of docs/leasing.md, with what it leaves out. It is compiled and not run: it needs a hub.
func Example_leasing() {
	if err := crawl(context.Background(), []string{"https://example.com/"}); err != nil {
		panic(err)
	}
}

func crawl(ctx context.Context, urls []string) error {
	hub, err := leaseclient.HubFromEnvironment() // SHOAL, SHOAL_CA, SHOAL_TOKEN
	if err != nil {
		return err
	}
	service, err := hub.Service()
	if err != nil {
		return err
	}
	client, err := leaseclient.New(leaseclient.Options{Service: service})
	if err != nil {
		return err
	}
	defer client.Close(ctx) // releases whatever is held

	transport, err := leaseclient.NewTransport(leaseclient.TransportOptions{
		Client:  client,
		Fleet:   "crawl/news",
		Session: func(r *http.Request) string { return r.URL.Hostname() }, // leave it out for a lease each
		Retries: 2,
	})
	if err != nil {
		return err
	}
	crawler := &http.Client{Transport: transport}
	for _, url := range urls {
		page, err := crawler.Get(url)
		if err != nil {
			return err // errors.As knows *leaseclient.Refusal and *leaseclient.ProxyError
		}
		fmt.Println(page.Status, "through", leaseclient.LeaseOf(page).State().Exit)
		page.Body.Close() // the end of the use
	}
	return nil
}
