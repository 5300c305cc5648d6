package computeclient

import (
	"context"
	"path"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"
	"k8s.io/utils/ptr"
)

// InsertInstance asks for an instance. The operation may fail later. The same requestID, a UUID, gives the same operation
// for an hour at least, however it ended.
func (c *Client) InsertInstance(ctx context.Context, zone, requestID string, spec InstanceSpec) (Operation, error) {
	if err := checkNames("zone", zone, "instance", spec.Name, "machine type", spec.MachineType); err != nil {
		return Operation{}, err
	}
	if err := checkLabels(spec.Labels); err != nil {
		return Operation{}, err
	}
	ctx, cancel, call := c.begin(ctx, "instances.insert", zone+"/"+spec.Name)
	defer cancel()
	request := &computepb.InsertInstanceRequest{Project: c.o.Project, Zone: zone, InstanceResource: resource(zone, spec)}
	if requestID != "" {
		request.RequestId = &requestID
	}
	answer, err := c.instances.Insert(ctx, request)
	if err != nil {
		return Operation{}, call.end(err, "requestID", requestID)
	}
	o := operation(answer.Proto())
	return o, call.end(nil, append(o.details(), "requestID", requestID, "machineType", spec.MachineType, "spot", spec.Spot)...)
}

// GetInstance reads an instance.
func (c *Client) GetInstance(ctx context.Context, zone, name string) (Instance, error) {
	if err := checkNames("zone", zone, "instance", name); err != nil {
		return Instance{}, err
	}
	ctx, cancel, call := c.begin(ctx, "instances.get", zone+"/"+name)
	defer cancel()
	answer, err := c.instances.Get(ctx, &computepb.GetInstanceRequest{Project: c.o.Project, Zone: zone, Instance: name}, retried())
	if err != nil {
		return Instance{}, call.end(err)
	}
	i := instance(answer)
	return i, call.end(nil, "status", i.Status)
}

// DeleteInstance asks for an instance's end. At once skips what the instance does before it stops, where it has been
// given time for that.
func (c *Client) DeleteInstance(ctx context.Context, zone, name string, atOnce bool) (Operation, error) {
	if err := checkNames("zone", zone, "instance", name); err != nil {
		return Operation{}, err
	}
	ctx, cancel, call := c.begin(ctx, "instances.delete", zone+"/"+name)
	defer cancel()
	request := &computepb.DeleteInstanceRequest{Project: c.o.Project, Zone: zone, Instance: name}
	if atOnce {
		request.NoGracefulShutdown = ptr.To(true)
	}
	answer, err := c.instances.Delete(ctx, request)
	if err != nil {
		return Operation{}, call.end(err)
	}
	o := operation(answer.Proto())
	return o, call.end(nil, o.details()...)
}

// SetMetadata replaces all of an instance's metadata. It fails with status 412 where the fingerprint is an old one.
func (c *Client) SetMetadata(ctx context.Context, zone, name, fingerprint string, all []Item) (Operation, error) {
	if err := checkNames("zone", zone, "instance", name); err != nil {
		return Operation{}, err
	}
	ctx, cancel, call := c.begin(ctx, "instances.setMetadata", zone+"/"+name)
	defer cancel()
	answer, err := c.instances.SetMetadata(ctx, &computepb.SetMetadataInstanceRequest{
		Project: c.o.Project, Zone: zone, Instance: name,
		MetadataResource: &computepb.Metadata{Fingerprint: &fingerprint, Items: items(all)},
	})
	if err != nil {
		return Operation{}, call.end(err)
	}
	o := operation(answer.Proto())
	return o, call.end(nil, o.details()...)
}

// resource is the instance as Compute Engine is asked for it: shielded, without a service account whose token could be
// taken, and gone with its disk when it is gone.
func resource(zone string, spec InstanceSpec) *computepb.Instance {
	nic := &computepb.NetworkInterface{}
	if spec.Network != "" {
		nic.Network = &spec.Network
	}
	if spec.Subnetwork != "" {
		nic.Subnetwork = &spec.Subnetwork
	}
	if spec.External {
		access := &computepb.AccessConfig{Type: ptr.To("ONE_TO_ONE_NAT"), Name: ptr.To("External NAT"), NetworkTier: &spec.NetworkTier}
		if spec.Address != "" {
			access.NatIP = &spec.Address
		}
		nic.AccessConfigs = []*computepb.AccessConfig{access}
	}
	return &computepb.Instance{
		Name:              &spec.Name,
		Description:       &spec.Description,
		MachineType:       ptr.To("zones/" + zone + "/machineTypes/" + spec.MachineType),
		Labels:            spec.Labels,
		Tags:              &computepb.Tags{Items: spec.Tags},
		Metadata:          &computepb.Metadata{Items: items(spec.Metadata)},
		NetworkInterfaces: []*computepb.NetworkInterface{nic},
		Scheduling:        scheduling(spec),
		Disks: []*computepb.AttachedDisk{{
			Boot: ptr.To(true), AutoDelete: ptr.To(true),
			InitializeParams: &computepb.AttachedDiskInitializeParams{
				SourceImage: &spec.Image, DiskSizeGb: &spec.DiskGB, DiskType: ptr.To("zones/" + zone + "/diskTypes/pd-balanced"),
				Labels: spec.Labels,
			},
		}},
		ShieldedInstanceConfig: &computepb.ShieldedInstanceConfig{
			EnableSecureBoot: ptr.To(true), EnableVtpm: ptr.To(true), EnableIntegrityMonitoring: ptr.To(true),
		},
		CanIpForward:       ptr.To(false),
		DeletionProtection: ptr.To(false),
	}
}

// scheduling lets Compute Engine itself remove the instance: when its time is over, and when it is taken back. What would
// be stopped only would be billed for its disk.
func scheduling(spec InstanceSpec) *computepb.Scheduling {
	s := &computepb.Scheduling{ProvisioningModel: ptr.To("STANDARD"), AutomaticRestart: ptr.To(true), OnHostMaintenance: ptr.To("MIGRATE")}
	if spec.Spot {
		s.ProvisioningModel, s.AutomaticRestart, s.OnHostMaintenance = ptr.To("SPOT"), ptr.To(false), ptr.To("TERMINATE")
		s.InstanceTerminationAction = ptr.To("DELETE")
	}
	if spec.MaxRunDuration > 0 {
		s.MaxRunDuration = &computepb.Duration{Seconds: ptr.To(int64(spec.MaxRunDuration / time.Second))}
		s.InstanceTerminationAction = ptr.To("DELETE")
	}
	return s
}

func items(from []Item) []*computepb.Items {
	var to []*computepb.Items
	for _, i := range from {
		to = append(to, &computepb.Items{Key: &i.Key, Value: &i.Value})
	}
	return to
}

func instance(from *computepb.Instance) Instance {
	i := Instance{
		ID:                  from.GetId(),
		Name:                from.GetName(),
		Zone:                path.Base(from.GetZone()),
		Status:              from.GetStatus(),
		StatusMessage:       from.GetStatusMessage(),
		CreatedAt:           timestamp(from.GetCreationTimestamp()),
		Labels:              from.GetLabels(),
		Spot:                from.GetScheduling().GetProvisioningModel() == "SPOT" || from.GetScheduling().GetPreemptible(),
		MetadataFingerprint: from.GetMetadata().GetFingerprint(),
	}
	for _, m := range from.GetMetadata().GetItems() {
		i.Metadata = append(i.Metadata, Item{Key: m.GetKey(), Value: m.GetValue()})
	}
	if nics := from.GetNetworkInterfaces(); len(nics) > 0 {
		i.InternalIP = nics[0].GetNetworkIP()
		for _, a := range nics[0].GetAccessConfigs() {
			if a.GetNatIP() != "" {
				i.ExternalIP = a.GetNatIP()
			}
		}
	}
	return i
}

// timestamp parses a time of the API. One that cannot be read is no time, and never young enough to be spared.
func timestamp(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}
	}
	return t
}
