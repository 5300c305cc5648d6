package computefake

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// insert takes a new instance, or refuses it. What it takes may still fail: the operation says so then.
func (w *world) insert(now time.Time, c *call) (any, *apiError) {
	p, zone := w.projects[c.vars["project"]], c.vars["zone"]
	var in Instance
	if bad := c.decode(&in); bad != nil {
		return nil, bad
	}
	if o, bad := w.remembered(now, p, c); o != nil || bad != nil {
		return o.answer(), bad
	}
	i := &instance{Instance: in, project: p.name, zone: zone, createdAt: now}
	late, bad := w.check(i)
	if bad != nil {
		return nil, bad
	}
	if _, taken := p.instances[zone][i.Name]; taken {
		return nil, alreadyExists(i.path())
	}
	if i.static != nil && i.static.user != nil {
		return nil, &apiError{code: 400, reason: reasonInUse, message: fmt.Sprintf(
			"The resource 'projects/%s/regions/%s/addresses/%s' is already being used by another resource", p.name, regionOf(zone), i.static.Name)}
	}
	failure := w.exceeded(p.name, regionOf(zone), i.demand())
	if failure != nil && w.faults.quotaSync {
		return nil, quotaError(failure)
	}
	if failure == nil {
		failure = late
	}
	if failure == nil {
		failure = w.injectedFailure(i)
	}
	w.furnish(now, i)
	p.instances[zone][i.Name] = i
	o := w.begin(now, p, "zones/"+zone, "insert", i.path(), i.ID)
	w.remember(now, p, c, o)
	i.starting = o
	if failure != nil {
		w.after(now.Add(w.o.Timing.Fail), func(at time.Time) {
			if w.live(i) && i.starting == o {
				w.remove(i)
				o.finish(at, failure)
			}
		})
		return o.Operation, nil
	}
	w.boot(now, i)
	return o.Operation, nil
}

// answer gives the operation for a reply; nil for the nil one.
func (o *operation) answer() any {
	if o == nil {
		return nil
	}
	return o.Operation
}

// furnish fills in what the API itself says of an instance.
func (w *world) furnish(now time.Time, i *instance) {
	i.Kind, i.ID, i.CreationTimestamp = "compute#instance", w.newID(), stamp(now)
	i.Zone, i.SelfLink = link("projects/"+i.project+"/zones/"+i.zone), link(i.path())
	i.Status = statusProvisioning
	i.LabelFingerprint = fingerprint(i.Labels)
	if i.Tags == nil {
		i.Tags = &Tags{}
	}
	i.Tags.Fingerprint = fingerprint(i.Tags.Items)
	if i.Metadata == nil {
		i.Metadata = &Metadata{}
	}
	i.Metadata.Kind, i.Metadata.Fingerprint = "compute#metadata", metadataFingerprint(i.Metadata)
	i.Fingerprint = fingerprint(i.ID)
	for k := range i.Disks {
		d := &i.Disks[k]
		d.Kind, d.Type, d.Mode, d.Index = "compute#attachedDisk", "PERSISTENT", "READ_WRITE", int32(k)
		d.Source = link(fmt.Sprintf("projects/%s/zones/%s/disks/%s", i.project, i.zone, i.Name))
		d.DeviceName, d.DiskSizeGB, d.InitializeParams, d.Interface = "persistent-disk-0", Int64(i.diskGB), nil, "SCSI"
	}
	if i.static != nil {
		i.static.user, i.static.Status, i.static.Users = i, "IN_USE", []string{i.SelfLink}
	}
}

// injectedFailure gives the failure that a test planned for this insert.
func (w *world) injectedFailure(i *instance) *OperationFailure {
	for k, f := range w.faults.failInserts {
		if f.Zone != "" && f.Zone != i.zone || f.Name != "" && f.Name != i.Name {
			continue
		}
		if f.Times > 0 {
			if f.Times--; f.Times == 0 {
				w.faults.failInserts = slices.Delete(w.faults.failInserts, k, k+1)
			}
		}
		return &f.Failure
	}
	if s, ok := w.faults.stockouts[i.zone]; ok {
		return s.failure(i)
	}
	return nil
}

// check validates an instance to insert and works out what it takes. The late failure is one that only the operation tells.
func (w *world) check(i *instance) (late *OperationFailure, bad *apiError) {
	switch {
	case i.Name == "":
		return nil, invalid("resource.name", "''. It is required.")
	case !namePattern.MatchString(i.Name):
		return nil, invalid("resource.name", "'%s'. Must be a match of regex '(?:[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)'", i.Name)
	case i.ID != 0, i.Status != "", i.SelfLink != "", i.CreationTimestamp != "", i.Zone != "", i.LabelFingerprint != "",
		i.Fingerprint != "", i.StatusMessage != "", i.LastStartTimestamp != "", i.LastStopTimestamp != "":
		return nil, invalid("resource", "A field is set that only the service may set.")
	case i.Kind != "" && i.Kind != "compute#instance":
		return nil, invalid("resource.kind", "'%s'.", i.Kind)
	}
	if bad := checkLabels("resource.labels", i.Labels); bad != nil {
		return nil, bad
	}
	if i.Metadata != nil {
		if i.Metadata.Fingerprint != "" {
			return nil, invalid("resource.metadata.fingerprint", "A new instance has none.")
		}
		if bad := checkMetadata("resource.metadata", i.Metadata); bad != nil {
			return nil, bad
		}
	}
	if bad := checkTags(i.Tags); bad != nil {
		return nil, bad
	}
	if bad := w.checkMachineType(i); bad != nil {
		return nil, bad
	}
	if late, bad = w.checkDisks(i); bad != nil {
		return nil, bad
	}
	if bad := w.checkNetwork(i); bad != nil {
		return nil, bad
	}
	return late, checkScheduling(i)
}

func checkTags(t *Tags) *apiError {
	if t == nil {
		return nil
	}
	if len(t.Items) > maxTags {
		return invalid("resource.tags", "%d tags, more than %d.", len(t.Items), maxTags)
	}
	for k, tag := range t.Items {
		if !namePattern.MatchString(tag) || slices.Contains(t.Items[:k], tag) {
			return invalid(fmt.Sprintf("resource.tags.items[%d]", k), "'%s'. Must be unique and match '%s'.", tag, namePattern)
		}
	}
	return nil
}

func (w *world) checkMachineType(i *instance) *apiError {
	project, s, ok := reference(i.MachineType, i.project)
	if !ok || project != i.project || len(s) != 4 || s[0] != "zones" || s[2] != "machineTypes" {
		return invalid("resource.machineType", "'%s'. The URL is malformed.", i.MachineType)
	}
	cpus, known := w.o.MachineTypes[s[3]]
	if s[1] != i.zone || !known {
		return invalid("resource.machineType", "'%s'. The referenced resource does not exist.", i.MachineType)
	}
	i.cpus = cpus
	i.MachineType = link("projects/" + project + "/" + strings.Join(s, "/"))
	return nil
}

// minDiskGB is what the images need.
const minDiskGB = 10

func (w *world) checkDisks(i *instance) (late *OperationFailure, bad *apiError) {
	if len(i.Disks) != 1 || !i.Disks[0].Boot {
		return nil, invalid("resource.disks", "Exactly one disk, the boot disk, is supported.")
	}
	d := i.Disks[0]
	switch {
	case d.InitializeParams == nil || d.InitializeParams.SourceImage == "":
		return nil, invalid("resource.disks[0].initializeParams.sourceImage", "''. It is required.")
	case d.Type != "" && d.Type != "PERSISTENT":
		return nil, invalid("resource.disks[0].type", "'%s'.", d.Type)
	case d.Mode != "" && d.Mode != "READ_WRITE":
		return nil, invalid("resource.disks[0].mode", "'%s'.", d.Mode)
	}
	init := d.InitializeParams
	if bad := checkLabels("resource.disks[0].initializeParams.labels", init.Labels); bad != nil {
		return nil, bad
	}
	if i.diskGB = int64(max(init.DiskSizeGB, d.DiskSizeGB)); i.diskGB == 0 {
		i.diskGB = minDiskGB
	}
	if i.diskGB < minDiskGB || i.diskGB > 65536 {
		return nil, invalid("resource.disks[0].initializeParams.diskSizeGb", "'%d'. Must be from %d to 65536.", i.diskGB, minDiskGB)
	}
	if init.DiskType != "" {
		project, s, ok := reference(init.DiskType, i.project)
		if !ok || project != i.project || len(s) != 4 || s[0] != "zones" || s[1] != i.zone || s[2] != "diskTypes" ||
			!slices.Contains([]string{"pd-standard", "pd-balanced", "pd-ssd"}, s[3]) {
			return nil, invalid("resource.disks[0].initializeParams.diskType", "'%s'. The referenced resource does not exist.", init.DiskType)
		}
		i.ssd = s[3] != "pd-standard"
	}
	project, s, ok := reference(init.SourceImage, i.project)
	if !ok || len(s) < 3 || s[0] != "global" || s[1] != "images" {
		return nil, invalid("resource.disks[0].initializeParams.sourceImage", "'%s'. The URL is malformed.", init.SourceImage)
	}
	if image := "projects/" + project + "/" + strings.Join(s, "/"); !slices.Contains(w.o.Images, image) {
		late = &OperationFailure{Code: "RESOURCE_NOT_FOUND", Message: notFound(image).message, HTTPStatus: 404}
	}
	return late, nil
}

func (w *world) checkNetwork(i *instance) *apiError {
	if len(i.NetworkInterfaces) != 1 {
		return invalid("resource.networkInterfaces", "Exactly one network interface is supported.")
	}
	n, region := &i.NetworkInterfaces[0], regionOf(i.zone)
	const at = "resource.networkInterfaces[0]"
	if n.NetworkIP != "" || n.Fingerprint != "" || n.Name != "" && n.Name != "nic0" {
		return invalid(at, "Only network, subnetwork, stackType and access configurations are supported.")
	}
	network := "default"
	if n.Network != "" {
		project, s, ok := reference(n.Network, i.project)
		if !ok || project != i.project || len(s) != 3 || s[0] != "global" || s[1] != "networks" || !slices.Contains(w.o.Networks, s[2]) {
			return invalid(at+".network", "'%s'. The referenced network resource cannot be found.", n.Network)
		}
		network = s[2]
	}
	subnet := "default"
	if n.Subnetwork != "" {
		project, s, ok := reference(n.Subnetwork, i.project)
		if !ok || project != i.project || len(s) != 4 || s[0] != "regions" || s[2] != "subnetworks" {
			return invalid(at+".subnetwork", "'%s'. The URL is malformed.", n.Subnetwork)
		}
		if s[1] != region {
			return invalid(at+".subnetwork", "'%s'. The subnetwork is not in region %s.", n.Subnetwork, region)
		}
		subnet = s[3]
	}
	dual := slices.Contains(w.o.DualStackSubnetworks, subnet)
	if !dual && !slices.Contains(w.o.Subnetworks, subnet) {
		return invalid(at+".subnetwork", "'%s'. The referenced subnetwork resource cannot be found.", n.Subnetwork)
	}
	n.Kind, n.Name = "compute#networkInterface", "nic0"
	n.Network = link("projects/" + i.project + "/global/networks/" + network)
	n.Subnetwork = link("projects/" + i.project + "/regions/" + region + "/subnetworks/" + subnet)
	n.Fingerprint = fingerprint(n.Subnetwork)
	switch n.StackType {
	case "":
		n.StackType = "IPV4_ONLY"
	case "IPV4_ONLY":
	case "IPV4_IPV6":
		if !dual {
			return invalid(at+".stackType", "'IPV4_IPV6'. Subnetwork '%s' has no IPv6 range.", subnet)
		}
	default:
		return invalid(at+".stackType", "'%s'.", n.StackType)
	}
	if len(n.AccessConfigs) > 1 || len(n.IPv6AccessConfigs) > 1 {
		return invalid(at+".accessConfigs", "At most one access configuration of each family is supported.")
	}
	if len(n.IPv6AccessConfigs) == 1 {
		c := &n.IPv6AccessConfigs[0]
		if n.StackType != "IPV4_IPV6" || c.Type != "DIRECT_IPV6" || c.NetworkTier != "PREMIUM" || c.ExternalIPv6 != "" {
			return invalid(at+".ipv6AccessConfigs[0]", "It needs stackType IPV4_IPV6, type DIRECT_IPV6 and networkTier PREMIUM.")
		}
		i.wantIPv6, c.Kind = true, "compute#accessConfig"
		if c.Name == "" {
			c.Name = "external-ipv6"
		}
	}
	if len(n.AccessConfigs) == 1 {
		return w.checkAccess(i, &n.AccessConfigs[0], at+".accessConfigs[0]")
	}
	return nil
}

// checkAccess validates an external address and marks the instance as wanting one.
func (w *world) checkAccess(i *instance, a *AccessConfig, at string) *apiError {
	switch {
	case a.Type != "" && a.Type != "ONE_TO_ONE_NAT":
		return invalid(at+".type", "'%s'. Must be ONE_TO_ONE_NAT.", a.Type)
	case a.NetworkTier != "" && a.NetworkTier != "PREMIUM" && a.NetworkTier != "STANDARD":
		return invalid(at+".networkTier", "'%s'. Must be PREMIUM or STANDARD.", a.NetworkTier)
	}
	a.Kind, a.Type = "compute#accessConfig", "ONE_TO_ONE_NAT"
	if a.Name == "" {
		a.Name = "External NAT"
	}
	if a.NetworkTier == "" {
		a.NetworkTier = "PREMIUM"
	}
	i.external = true
	if a.NatIP == "" {
		return nil
	}
	if _, err := netip.ParseAddr(a.NatIP); err != nil {
		return invalid(at+".natIP", "'%s'. It is no IP address.", a.NatIP)
	}
	for _, reserved := range w.projects[i.project].addresses[regionOf(i.zone)] {
		if reserved.Address.Address == a.NatIP {
			if reserved.NetworkTier != a.NetworkTier {
				return invalid(at+".networkTier", "'%s'. The address '%s' is of tier %s.", a.NetworkTier, a.NatIP, reserved.NetworkTier)
			}
			// It is served from the start of the machine on, like any other address.
			i.static, a.NatIP = reserved, ""
			return nil
		}
	}
	return invalid(at+".natIP", "'%s'. The specified external IP address '%s' was not found in region '%s'.", a.NatIP, a.NatIP, regionOf(i.zone))
}

// The least and greatest maxRunDuration.
const (
	minRun = 30
	maxRun = 120 * 24 * 3600
)

func checkScheduling(i *instance) *apiError {
	const at = "resource.scheduling"
	if i.Scheduling == nil {
		i.Scheduling = &Scheduling{}
	}
	s := i.Scheduling
	switch s.ProvisioningModel {
	case "":
		s.ProvisioningModel = "STANDARD"
		if s.Preemptible {
			s.ProvisioningModel = "SPOT"
		}
	case "STANDARD", "SPOT":
	default:
		return invalid(at+".provisioningModel", "'%s'. Must be STANDARD or SPOT.", s.ProvisioningModel)
	}
	i.spot = s.ProvisioningModel == "SPOT"
	if s.AutomaticRestart == nil {
		restart := !i.spot
		s.AutomaticRestart = &restart
	}
	if s.OnHostMaintenance == "" {
		s.OnHostMaintenance = "MIGRATE"
		if i.spot {
			s.OnHostMaintenance = "TERMINATE"
		}
	}
	s.Preemptible = i.spot
	switch {
	case s.OnHostMaintenance != "MIGRATE" && s.OnHostMaintenance != "TERMINATE":
		return invalid(at+".onHostMaintenance", "'%s'. Must be MIGRATE or TERMINATE.", s.OnHostMaintenance)
	case i.spot && *s.AutomaticRestart:
		return invalid(at, "Scheduling must have automaticRestart be false when preemptible is true.")
	case i.spot && s.OnHostMaintenance != "TERMINATE":
		return invalid(at, "Scheduling must have onHostMaintenance be TERMINATE when preemptible is true.")
	case !slices.Contains([]string{"", "STOP", "DELETE"}, s.InstanceTerminationAction):
		return invalid(at+".instanceTerminationAction", "'%s'. Must be STOP or DELETE.", s.InstanceTerminationAction)
	case s.InstanceTerminationAction != "" && !i.spot && s.MaxRunDuration == nil:
		return invalid(at+".instanceTerminationAction", "It needs the SPOT provisioning model or a maxRunDuration.")
	}
	if i.spot && s.InstanceTerminationAction == "" {
		s.InstanceTerminationAction = "STOP"
	}
	if d := s.MaxRunDuration; d != nil {
		if d.Seconds < minRun || d.Seconds > maxRun || d.Nanos != 0 {
			return invalid(at+".maxRunDuration", "'%ds'. Must be whole seconds, from %d to %d.", int64(d.Seconds), minRun, maxRun)
		}
		if s.InstanceTerminationAction == "" {
			return invalid(at+".instanceTerminationAction", "''. It is required with maxRunDuration.")
		}
	}
	return nil
}
