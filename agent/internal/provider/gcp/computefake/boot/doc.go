// Package boot runs the machines of the Compute Engine fake for real, as containers of the proxy image: what a machine of
// Container-Optimized OS makes of its user data, without the machine.
//
// [Parse] is the pure half: from user data to a [Plan], by reading the cloud-config documents, the systemd units that they
// write and start, and the docker command in the proxy's unit. It knows what our recipe for machines uses and refuses
// everything else: a machine whose user data it half understands would prove nothing. [Loop] is the shell: it keeps the
// containers of a [Machines] as its plans say, through an [Engine].
//
// What differs from a real machine: the container is on a network of the engine instead of the machine's own, since there
// is no machine, and its address there is the machine's internal and external one; the firewall unit is understood and not
// carried out; the keys are written by the loop, from the same metadata, in the place of the unit that polls for them.
package boot
