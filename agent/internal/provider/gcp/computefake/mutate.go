package computefake

import (
	"net/http"
	"net/netip"
	"time"
)

// setMetadata replaces all metadata. The fingerprint is compared when the call is taken and again when it takes effect,
// so that of two changes on the way one fails.
func (w *world) setMetadata(now time.Time, c *call) (any, *apiError) {
	var in Metadata
	if bad := c.decode(&in); bad != nil {
		return nil, bad
	}
	if in.Kind != "" && in.Kind != "compute#metadata" {
		return nil, invalid("resource.kind", "'%s'.", in.Kind)
	}
	if bad := checkMetadata("resource", &in); bad != nil {
		return nil, bad
	}
	return w.fenced(now, c, "setMetadata", "Supplied", in.Fingerprint,
		func(i *instance) string { return i.Metadata.Fingerprint },
		func(i *instance) {
			fresh := Metadata{Kind: "compute#metadata", Items: in.Items}
			fresh.Fingerprint = metadataFingerprint(&fresh)
			i.Metadata = &fresh
		})
}

// setLabels replaces all labels.
func (w *world) setLabels(now time.Time, c *call) (any, *apiError) {
	var in struct {
		Labels           map[string]string `json:"labels,omitempty"`
		LabelFingerprint string            `json:"labelFingerprint,omitempty"`
	}
	if bad := c.decode(&in); bad != nil {
		return nil, bad
	}
	if bad := checkLabels("labels", in.Labels); bad != nil {
		return nil, bad
	}
	return w.fenced(now, c, "setLabels", "Labels", in.LabelFingerprint,
		func(i *instance) string { return i.LabelFingerprint },
		func(i *instance) { i.Labels, i.LabelFingerprint = in.Labels, fingerprint(in.Labels) })
}

// fenced serves a change that must name the fingerprint of what it replaces.
func (w *world) fenced(now time.Time, c *call, kind, what, given string, have func(*instance) string, set func(*instance)) (any, *apiError) {
	return w.change(now, c, kind, func(i *instance, o *operation) *apiError {
		if given != have(i) {
			return conditionNotMet(what)
		}
		if o == nil {
			return nil
		}
		w.after(now.Add(w.o.Timing.Change), func(at time.Time) {
			switch {
			case !w.live(i):
				o.finish(at, &OperationFailure{Code: "RESOURCE_NOT_FOUND", Message: notFound(i.path()).message, HTTPStatus: http.StatusNotFound})
			case given != have(i):
				o.finish(at, &OperationFailure{Code: "CONDITION_NOT_MET", Message: conditionNotMet(what).message, HTTPStatus: http.StatusPreconditionFailed})
			default:
				set(i)
				o.finish(at, nil)
			}
		})
		return nil
	})
}

// nic checks the one network interface that there is.
func nic(c *call) *apiError {
	if name := c.query.Get("networkInterface"); name != "nic0" {
		return invalid("networkInterface", "'%s'. The instance has nic0.", name)
	}
	return nil
}

// later ends an operation after the time that a change takes.
func (w *world) later(now time.Time, o *operation, set func()) {
	w.after(now.Add(w.o.Timing.Change), func(at time.Time) {
		set()
		o.finish(at, nil)
	})
}

// addAccessConfig gives a machine an external address.
func (w *world) addAccessConfig(now time.Time, c *call) (any, *apiError) {
	var in AccessConfig
	if bad := c.decode(&in); bad != nil {
		return nil, bad
	}
	if bad := nic(c); bad != nil {
		return nil, bad
	}
	return w.change(now, c, "addAccessConfig", func(i *instance, o *operation) *apiError {
		n := &i.NetworkInterfaces[0]
		if len(n.AccessConfigs) > 0 || w.o.Booted {
			return badRequest("At most one access config currently supported.")
		}
		if o == nil {
			// The check alone must not leave a mark.
			probe, config := *i, in
			if bad := w.checkAccess(&probe, &config, "resource"); bad != nil {
				return bad
			}
			if f := w.exceeded(i.project, regionOf(i.zone), map[string]float64{MetricInUseAddresses: 1}); f != nil {
				return quotaError(f)
			}
			if probe.static != nil && probe.static.user != nil {
				return &apiError{code: http.StatusBadRequest, reason: reasonInUse, message: "External IP address: " + in.NatIP + " is already in-use."}
			}
			return nil
		}
		config := in
		if bad := w.checkAccess(i, &config, "resource"); bad != nil {
			return bad
		}
		n.AccessConfigs = []AccessConfig{config}
		if i.static != nil {
			i.static.user, i.static.Status, i.static.Users = i, "IN_USE", []string{i.SelfLink}
		}
		w.later(now, o, func() {
			if w.live(i) && i.Status == statusRunning && len(n.AccessConfigs) > 0 && n.AccessConfigs[0].NatIP == "" {
				w.connect(i, netip.Addr{})
			}
		})
		return nil
	})
}

// deleteAccessConfig takes a machine's external address away.
func (w *world) deleteAccessConfig(now time.Time, c *call) (any, *apiError) {
	if bad := nic(c); bad != nil {
		return nil, bad
	}
	return w.change(now, c, "deleteAccessConfig", func(i *instance, o *operation) *apiError {
		n := &i.NetworkInterfaces[0]
		if len(n.AccessConfigs) == 0 || n.AccessConfigs[0].Name != c.query.Get("accessConfig") {
			return invalid("accessConfig", "'%s'. The instance has no such access configuration.", c.query.Get("accessConfig"))
		}
		if o == nil {
			return nil
		}
		w.giveBack(i, &n.AccessConfigs[0])
		w.release(i)
		n.AccessConfigs, i.external = nil, false
		w.later(now, o, func() {})
		return nil
	})
}
