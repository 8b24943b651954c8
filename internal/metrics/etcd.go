package metrics

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/safety"
)

var (
	memberUp = prometheus.NewDesc("talos_operator_etcd_member_up",
		"Whether the member of a machine responded when it was last observed.", machineLabels, nil)
	memberLeads = prometheus.NewDesc("talos_operator_etcd_member_leader",
		"Whether the member is the leader. Absent while it does not respond.", machineLabels, nil)
	memberSize = prometheus.NewDesc("talos_operator_etcd_member_database_bytes",
		"Size of the database file of a member. Absent while it does not respond.", machineLabels, nil)
	memberInUse = prometheus.NewDesc("talos_operator_etcd_member_database_in_use_bytes",
		"Size of the database of a member after a defragmentation. Absent while it does not respond.", machineLabels, nil)
	memberQuota = prometheus.NewDesc("talos_operator_etcd_member_database_quota_bytes",
		"Size at which a member raises the alarm NOSPACE, by the live machine configuration.", machineLabels, nil)
	memberAlarm = prometheus.NewDesc("talos_operator_etcd_member_alarm",
		"Whether the member raises an alarm of etcd. Absent while it does not respond.",
		append(machineLabels[:3:3], "alarm"), nil)
	leaderChanges = prometheus.NewDesc("talos_operator_etcd_leader_changes_total",
		"Observations of another leader than the one before.", planeLabels, nil)
)

// etcdAlarms are the alarms that etcd knows. Errors that a member reports as texts are not among them.
var etcdAlarms = []string{"NOSPACE", "CORRUPT"}

// plane is what was last observed of the etcd of a control plane.
type plane struct {
	nodes   []safety.Node
	leader  uint64
	changes int
}

// observations are kept in memory, because no status needs them: they would be written at each resync.
type observations struct {
	mu     sync.Mutex
	planes map[types.NamespacedName]plane
	quotas map[types.NamespacedName]int64
}

var observed = &observations{planes: map[types.NamespacedName]plane{}, quotas: map[types.NamespacedName]int64{}}

// ObserveEtcd tells what the control-plane nodes of a TalosControlPlane reported about etcd.
func ObserveEtcd(namespace, controlPlane string, nodes []safety.Node) {
	observed.mu.Lock()
	defer observed.mu.Unlock()

	key := types.NamespacedName{Namespace: namespace, Name: controlPlane}
	p := observed.planes[key]
	p.nodes = slices.Clone(nodes)

	if leader := leaderOf(nodes); leader != 0 {
		if p.leader != 0 && p.leader != leader {
			p.changes++
		}

		p.leader = leader
	}

	observed.planes[key] = p
}

// forget drops what was observed of a control plane: another one of its name begins anew, and a shard that returns
// tells nothing of before.
func (o *observations) forget(namespace, controlPlane string) {
	o.mu.Lock()
	defer o.mu.Unlock()

	key := types.NamespacedName{Namespace: namespace, Name: controlPlane}

	for i := range o.planes[key].nodes {
		delete(o.quotas, types.NamespacedName{Namespace: namespace, Name: o.planes[key].nodes[i].Name})
	}

	delete(o.planes, key)
}

// ObserveQuota tells the quota of the database, in bytes, in the live configuration of a control-plane machine.
func ObserveQuota(namespace, machine string, quota int64) {
	observed.mu.Lock()
	defer observed.mu.Unlock()

	observed.quotas[types.NamespacedName{Namespace: namespace, Name: machine}] = quota
}

// leaderOf is the leader that the most advanced member sees: one that lags may still see the one before. It is 0 if no
// member sees any.
func leaderOf(nodes []safety.Node) uint64 {
	var newest safety.Node

	for _, n := range nodes {
		if n.Leader != 0 && (newest.Leader == 0 || n.RaftIndex > newest.RaftIndex) {
			newest = n
		}
	}

	return newest.Leader
}

// Etcd tells of members when it is scraped, as far as their objects exist.
type Etcd struct {
	// Client reads from the cache.
	Client client.Reader
	seen   *observations
	// part of the fleet: of other objects, another part tells.
	part bool
}

// Describe implements prometheus.Collector.
func (Etcd) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		memberUp, memberLeads, memberSize, memberInUse, memberQuota, memberAlarm, leaderChanges,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (e Etcd) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()

	planes, machines := &v1alpha1.TalosControlPlaneList{}, &v1alpha1.TalosMachineList{}

	for _, list := range []client.ObjectList{planes, machines} {
		if err := e.Client.List(ctx, list, kube.Shared); err != nil {
			ch <- prometheus.NewInvalidMetric(memberUp, err)

			return
		}
	}

	e.seen.mu.Lock()
	defer e.seen.mu.Unlock()

	alive, there := e.seen.keep(planes, machines, e.part)

	for key, p := range e.seen.planes {
		if !alive[key] {
			continue
		}

		for i := range p.nodes {
			if n := &p.nodes[i]; there[types.NamespacedName{Namespace: key.Namespace, Name: n.Name}] {
				collectMember(ch, []string{key.Namespace, key.Name, n.Name}, n)
			}
		}

		ch <- prometheus.MustNewConstMetric(leaderChanges, prometheus.CounterValue, float64(p.changes),
			key.Namespace, key.Name)
	}

	for i := range machines.Items {
		o := &machines.Items[i]
		if quota, ok := e.seen.quotas[client.ObjectKeyFromObject(o)]; ok {
			gauge(ch, memberQuota, float64(quota), o.Namespace, o.Spec.ControlPlaneRef.Name, o.Name)
		}
	}
}

func collectMember(ch chan<- prometheus.Metric, labels []string, n *safety.Node) {
	responds := n.Serves() || n.NoLeader

	// A machine that never had a member has none that could respond: it is installed, or joins.
	if responds || n.LastMember != 0 {
		gauge(ch, memberUp, number(responds), labels...)
	}

	if !responds {
		return
	}

	gauge(ch, memberLeads, number(n.MemberID != 0 && n.Leader == n.MemberID), labels...)
	gauge(ch, memberSize, float64(n.DBSize), labels...)
	gauge(ch, memberInUse, float64(n.DBSizeInUse), labels...)

	for _, alarm := range etcdAlarms {
		gauge(ch, memberAlarm, number(slices.Contains(n.OwnAlarms, alarm)), append(labels[:3:3], alarm)...)
	}
}

// keep returns the control planes and machines that exist, and drops what is remembered of others, unless these are
// only a part of the fleet. The observations must be locked.
func (o *observations) keep(
	planes *v1alpha1.TalosControlPlaneList, machines *v1alpha1.TalosMachineList, part bool,
) (alive, there map[types.NamespacedName]bool) {
	alive, there = map[types.NamespacedName]bool{}, map[types.NamespacedName]bool{}

	for i := range planes.Items {
		alive[client.ObjectKeyFromObject(&planes.Items[i])] = true
	}

	for i := range machines.Items {
		there[client.ObjectKeyFromObject(&machines.Items[i])] = true
	}

	if !part {
		maps.DeleteFunc(o.planes, func(key types.NamespacedName, _ plane) bool { return !alive[key] })
		maps.DeleteFunc(o.quotas, func(key types.NamespacedName, _ int64) bool { return !there[key] })
	}

	return alive, there
}
