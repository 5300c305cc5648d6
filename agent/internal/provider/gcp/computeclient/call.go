package computeclient

import (
	"context"
	"time"

	"github.com/go-logr/logr"
)

// call is one call to the API, for the log.
type call struct {
	c     *Client
	name  string
	log   logr.Logger
	start time.Time
}

// begin starts a call and bounds it.
func (c *Client) begin(ctx context.Context, method, target string) (context.Context, context.CancelFunc, *call) {
	log := loggerOf(ctx, c.o.Logger)
	// Reads are retried, each within its own bound.
	ctx, cancel := context.WithTimeout(ctx, attempts*c.o.Timeout)
	return ctx, cancel, &call{c: c, name: method + " " + target, start: c.o.Clock.Now(), log: log.WithName("compute").WithValues(
		"project", c.o.Project, "method", method, "target", target)}
}

// end logs the outcome, and gives the error in our own form. The details are pairs of key and value.
func (k *call) end(err error, details ...any) error {
	err = k.c.translate(k.name, err)
	k.log.V(1).Info("compute call", "outcome", outcome(err), "duration", k.c.o.Clock.Since(k.start).Round(time.Millisecond).String())
	if err != nil {
		details = append(details, "err", err.Error())
	}
	if len(details) > 0 {
		k.log.V(2).Info("compute call in detail", details...)
	}
	return err
}

// loggerOf prefers the logger of whom the call is for.
func loggerOf(ctx context.Context, otherwise logr.Logger) logr.Logger {
	if log, err := logr.FromContext(ctx); err == nil {
		return log
	}
	return otherwise
}
