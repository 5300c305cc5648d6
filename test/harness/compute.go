package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
)

// Compute is the Compute Engine that the region's machines are in, seen as its owner sees it: by its API.
type Compute struct {
	// Endpoint is the API's address, Project the one project.
	Endpoint, Project string
}

// Machine is an instance as far as tests look at it.
type Machine struct {
	ID     string            `json:"id"`
	Name   string            `json:"name"`
	Zone   string            `json:"zone"`
	Status string            `json:"status"`
	Labels map[string]string `json:"labels"`
	NICs   []struct {
		Access []struct {
			NatIP string `json:"natIP"`
		} `json:"accessConfigs"`
	} `json:"networkInterfaces"`
}

// Address is the machine's address of the internet; invalid while it has none.
func (m Machine) Address() netip.Addr {
	if len(m.NICs) == 0 || len(m.NICs[0].Access) == 0 {
		return netip.Addr{}
	}
	addr, err := netip.ParseAddr(m.NICs[0].Access[0].NatIP)
	if err != nil {
		return netip.Addr{}
	}
	return addr
}

// Machines lists all instances, and gives the answer as it came as well: with all metadata.
func (c Compute) Machines(ctx context.Context) (machines []Machine, answer string, err error) {
	answer, err = c.call(ctx, http.MethodGet, "aggregated/instances")
	if err != nil {
		return nil, "", err
	}
	var list struct {
		Items map[string]struct {
			Instances []Machine `json:"instances"`
		} `json:"items"`
		Next string `json:"nextPageToken"`
	}
	if err := json.Unmarshal([]byte(answer), &list); err != nil {
		return nil, "", err
	}
	if list.Next != "" {
		return nil, "", fmt.Errorf("more than a page of instances")
	}
	for _, scope := range list.Items {
		machines = append(machines, scope.Instances...)
	}
	return machines, answer, nil
}

// Delete removes a machine by hand, as its owner might.
func (c Compute) Delete(ctx context.Context, m Machine) error {
	zone := m.Zone[strings.LastIndexByte(m.Zone, '/')+1:]
	_, err := c.call(ctx, http.MethodDelete, "zones/"+zone+"/instances/"+m.Name)
	return err
}

func (c Compute) call(ctx context.Context, method, path string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.Endpoint+"/compute/v1/projects/"+c.Project+"/"+path, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, text)
	}
	return string(text), nil
}
