package notification_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/app"
	"github.com/talos-operator/talos-operator/internal/controller/notification"
	decide "github.com/talos-operator/talos-operator/internal/decide/notification"
	"github.com/talos-operator/talos-operator/internal/webhook"
	"github.com/talos-operator/talos-operator/test/harness"
)

const (
	namespace = "clusters"
	// secret is part of each address.
	secret  = "T0p53cr3t"
	address = "https://hooks.example.com/" + secret
)

// receiver is what is behind the addresses. Its responses are given one after the other, the last one for ever.
type receiver struct {
	mu      sync.Mutex
	answers []decide.Outcome
	got     []string
	onSend  func()
}

func (r *receiver) Check(address string) error { return (&webhook.Sender{}).Check(address) }

func (r *receiver) Send(_ context.Context, address, id string, body []byte) decide.Outcome {
	r.mu.Lock()
	defer r.mu.Unlock()

	var told struct {
		Event string `json:"event"`
		Text  string `json:"text"`
	}

	if err := json.Unmarshal(body, &told); err != nil {
		return decide.Outcome{Verdict: decide.Refused, Why: err.Error()}
	}

	if told.Event == "" { // Slack
		told.Event = told.Text
	}

	r.got = append(r.got, strings.TrimPrefix(address, address[:strings.LastIndex(address, "/")+1])+" "+id+" "+told.Event)

	if r.onSend != nil {
		r.onSend()
	}

	if len(r.answers) == 0 {
		return decide.Outcome{Verdict: decide.Accepted}
	}

	out := r.answers[0]
	if len(r.answers) > 1 {
		r.answers = r.answers[1:]
	}

	return out
}

// world is a control plane with a webhook, and an operator that is called by hand.
type world struct {
	*testing.T

	admin    client.WithWatch
	client   *harness.Client
	clock    *harness.Clock
	events   *events.FakeRecorder
	log      *harness.Log
	receiver *receiver
	r        *notification.Reconciler
	// context is that of a reconciliation.
	context func() context.Context
}

func hook(of v1alpha1.NotificationType, key string, on ...v1alpha1.NotificationEvent) v1alpha1.UpgradeNotification {
	return v1alpha1.UpgradeNotification{Type: of, SecretRef: v1alpha1.SecretKeyReference{Name: "hooks", Key: key}, Events: on}
}

func newWorld(t *testing.T, hooks ...v1alpha1.UpgradeNotification) *world {
	t.Helper()
	t.Parallel()

	scheme, err := app.Scheme()
	if err != nil {
		t.Fatal(err)
	}

	cp := &v1alpha1.TalosControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "c", UID: "c-uid"}}
	cp.Spec.Upgrade = &v1alpha1.UpgradeOptions{Notifications: hooks}

	w := &world{
		T: t, clock: harness.NewClock(), events: events.NewFakeRecorder(1000), log: &harness.Log{}, receiver: &receiver{}, context: t.Context,
		admin: fake.NewClientBuilder().WithScheme(scheme).
			WithStatusSubresource(&v1alpha1.TalosUpgrade{}, &v1alpha1.KubernetesUpgrade{}, &v1alpha1.TalosControlPlane{}, &v1alpha1.TalosWorker{}).
			WithObjects(cp, &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "hooks"},
				Data:       map[string][]byte{"url": []byte(address + "/url\n"), "other": []byte(address + "/other")},
			}).Build(),
	}
	w.clock.SetTime(time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC))
	w.restart()

	return w
}

// restart is a crash of the operator.
func (w *world) restart() {
	w.client = harness.NewClient(w.admin)
	w.r = &notification.Reconciler{
		Client: w.client, Reader: w.client, Sender: w.receiver, Recorder: w.events, Clock: w.clock, Resync: time.Hour,
	}
}

func (w *world) tryPass() (ctrl.Result, error) {
	w.Helper()

	logger, err := app.NewLogger(w.log, "debug")
	if err != nil {
		w.Fatal(err)
	}

	res, err := w.r.Reconcile(ctrl.LoggerInto(w.context(), logger), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: "c"}})
	if err != nil {
		logger.Error(err, "Reconciler error")
	}

	return res, err
}

// passes reconciles until nothing is due, and returns when it is called again.
func (w *world) passes() time.Duration {
	w.Helper()

	for range 100 {
		res, err := w.tryPass()
		if err != nil {
			w.Fatal(err)
		}

		if res.RequeueAfter >= time.Second {
			return res.RequeueAfter
		}
	}

	w.Fatal("it does not come to rest")

	return 0
}

func must[T client.Object](w *world, o T, do func(context.Context, client.Object) error) T {
	w.Helper()

	if err := do(w.Context(), o); err != nil {
		w.Fatal(err)
	}

	return o
}

func (w *world) get(o client.Object, name string) {
	w.Helper()

	if err := w.admin.Get(w.Context(), types.NamespacedName{Namespace: namespace, Name: name}, o); err != nil {
		w.Fatal(err)
	}
}

// record writes the record of a run as its controller does.
func (w *world) record(name string, phase v1alpha1.UpgradeRunPhase, message string) {
	w.Helper()

	u, cp := &v1alpha1.TalosUpgrade{}, &v1alpha1.TalosControlPlane{}
	w.get(cp, "c")

	if err := w.admin.Get(w.Context(), types.NamespacedName{Namespace: namespace, Name: name}, u); err != nil {
		u = &v1alpha1.TalosUpgrade{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: name, UID: types.UID(name), Labels: map[string]string{v1alpha1.ControlPlaneLabel: "c"},
			},
			Spec: v1alpha1.UpgradeRunSpec{ControlPlaneRef: v1alpha1.ObjectReference{Name: "c"}, From: "v1.12.4", To: "v1.13.9"},
		}

		if err := errors.Join(ctrl.SetControllerReference(cp, u, w.admin.Scheme()), w.admin.Create(w.Context(), u)); err != nil {
			w.Fatal(err)
		}
	}

	now := metav1.NewTime(w.clock.Now())

	u.Status.Phase, u.Status.Message = phase, message
	if u.Status.StartTime == nil {
		u.Status.StartTime = &now
	}

	switch phase {
	case v1alpha1.UpgradeRunSucceeded, v1alpha1.UpgradeRunFailed, v1alpha1.UpgradeRunCalledOff:
		u.Status.CompletionTime = &now
	}

	if err := w.admin.Status().Update(w.Context(), u); err != nil {
		w.Fatal(err)
	}
}

// change changes the control plane as a user does.
func (w *world) change(edit func(*v1alpha1.TalosControlPlane)) {
	w.Helper()

	cp := &v1alpha1.TalosControlPlane{}
	w.get(cp, "c")
	edit(cp)

	if err := w.admin.Update(w.Context(), cp); err != nil {
		w.Fatal(err)
	}
}

// wants fails the test unless the receiver got this since it was asked last.
func (w *world) wants(when string, want ...string) {
	w.Helper()
	w.receiver.mu.Lock()
	defer w.receiver.mu.Unlock()

	if got := strings.Join(w.receiver.got, ", "); got != strings.Join(want, ", ") {
		w.Errorf("%s: %q, want %q", when, got, want)
	}

	w.receiver.got = nil
}

// told fails the test unless these are parts of the events since it was asked last. None has anything of an address.
func (w *world) told(when string, want ...string) {
	w.Helper()

	var got []string
	for range len(w.events.Events) {
		got = append(got, <-w.events.Events)
	}

	ok := len(got) == len(want)
	for i := range min(len(got), len(want)) {
		ok = ok && strings.Contains(got[i], want[i])
	}

	if !ok || strings.Contains(fmt.Sprint(got), secret) {
		w.Errorf("%s: told %q, want %q", when, got, want)
	}
}

// keepsSecrets fails the test if anything that was written or logged has a part of an address.
func (w *world) keepsSecrets() {
	w.Helper()

	cp, list := &v1alpha1.TalosControlPlane{}, &v1alpha1.TalosUpgradeList{}
	w.get(cp, "c")

	if err := w.admin.List(w.Context(), list); err != nil {
		w.Fatal(err)
	}

	raw, err := json.Marshal([]any{cp, list})
	if err != nil {
		w.Fatal(err)
	}

	for name, text := range map[string]string{"objects": string(raw), "log": w.log.String()} {
		if strings.Contains(text, secret) || strings.Contains(text, "hooks.example.com") {
			w.Errorf("the %s have the address: %s", name, text)
		}
	}
}
