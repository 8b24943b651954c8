package harness_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/talos-operator/talos-operator/test/harness"
)

// TestMemoryIsNeverBehind: whatever two clients write, and in whatever order they read, both read what the API server
// would answer.
func TestMemoryIsNeverBehind(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		api := fake.NewClientBuilder().Build()
		memory := harness.NewMemory()
		clients := []client.WithWatch{memory.Remembering(api), memory.Remembering(api)}

		for i := range rapid.IntRange(5, 40).Draw(t, "steps") {
			c := clients[rapid.IntRange(0, 1).Draw(t, "client")]
			s := secret(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name"))

			step(t, c, s, i)

			same(t, api, clients[rapid.IntRange(0, 1).Draw(t, "reader")], s)
		}
	})
}

// step writes, or does not.
func step(t *rapid.T, c client.WithWatch, s *corev1.Secret, i int) {
	ctx := t.Context()
	s.Labels = map[string]string{"even": fmt.Sprint(i%2 == 0)}
	s.StringData = map[string]string{"step": fmt.Sprint(i)}

	var err error

	verbs := []string{"create", "create any", "update", "patch", "delete", "delete all", "apply", "read"}

	switch rapid.SampledFrom(verbs).Draw(t, "verb") {
	case "create":
		err = c.Create(ctx, s)
	case "create any":
		s.Name, s.GenerateName = "", "any-"
		err = c.Create(ctx, s)
	case "apply":
		err = c.Apply(ctx, corev1ac.Secret(s.Name, s.Namespace).WithLabels(s.Labels), client.FieldOwner("t"), client.ForceOwnership)
	case "update":
		err = c.Update(ctx, s)
	case "patch":
		err = c.Patch(ctx, s, client.RawPatch("application/merge-patch+json",
			fmt.Appendf(nil, `{"metadata":{"annotations":{"step":"%d"}}}`, i)))
	case "delete":
		err = c.Delete(ctx, s)
	case "delete all":
		err = c.DeleteAllOf(ctx, s, client.InNamespace(s.Namespace), client.MatchingLabels{"even": "true"})
	}

	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

// same compares what the two read: one object, all of them, and those with a label.
func same(t *rapid.T, api, c client.Client, s *corev1.Secret) {
	ctx := t.Context()

	want, got := &corev1.Secret{}, &corev1.Secret{}
	wantErr, gotErr := api.Get(ctx, client.ObjectKeyFromObject(s), want), c.Get(ctx, client.ObjectKeyFromObject(s), got)

	if fmt.Sprint(wantErr) != fmt.Sprint(gotErr) || wantErr == nil && !equality.Semantic.DeepEqual(want, got) {
		t.Fatalf("get: %v %v, want %v %v", got, gotErr, want, wantErr)
	}

	for _, opts := range [][]client.ListOption{{}, {client.MatchingLabels{"even": "true"}}} {
		opts = append(opts, client.InNamespace(s.Namespace))
		wants, gots := &corev1.SecretList{}, &corev1.SecretList{}

		if err := api.List(ctx, wants, opts...); err != nil {
			t.Fatal(err)
		}

		if err := c.List(ctx, gots, opts...); err != nil {
			t.Fatal(err)
		}

		if !equality.Semantic.DeepEqual(wants.Items, gots.Items) && len(wants.Items)+len(gots.Items) > 0 {
			t.Fatalf("list: %v, want %v", gots.Items, wants.Items)
		}
	}
}

// TestMemorySavesReads: what was not written since is not asked again, by any client of the process that is allowed
// to; a client whose user may not read it is refused by the API server, whatever others have read.
func TestMemorySavesReads(t *testing.T) {
	reads, forbidden := 0, false
	api := interceptor.NewClient(fake.NewClientBuilder().WithObjects(secret("a")).Build(), interceptor.Funcs{
		Get: func(
			ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption,
		) error {
			reads++

			if forbidden {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, key.Name, nil)
			}

			return c.Get(ctx, key, o, opts...)
		},
	})
	memory := harness.NewMemory()
	first, second := memory.Remembering(api), memory.Remembering(api)

	for range 3 {
		if err := first.Get(t.Context(), client.ObjectKeyFromObject(secret("a")), &corev1.Secret{}); err != nil {
			t.Fatal(err)
		}
	}

	if reads != 1 {
		t.Errorf("three reads are %d requests, want 1", reads)
	}

	forbidden = true

	err := second.Get(t.Context(), client.ObjectKeyFromObject(secret("a")), &corev1.Secret{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("a user without rights: %v, want a refusal", err)
	}
}

// TestMemoryForgetsWhatIsWrittenMeanwhile: an answer that was on its way during a write is not remembered.
func TestMemoryForgetsWhatIsWrittenMeanwhile(t *testing.T) {
	for name, write := range map[string]func(context.Context, client.Client) error{
		"one": func(ctx context.Context, c client.Client) error {
			s := secret("a")
			s.Labels = map[string]string{"written": "meanwhile"}

			return c.Update(ctx, s)
		},
		"any": func(ctx context.Context, c client.Client) error {
			return c.Apply(ctx, corev1ac.Secret("a", "n").WithLabels(map[string]string{"written": "meanwhile"}),
				client.FieldOwner("t"), client.ForceOwnership)
		},
	} {
		t.Run(name, func(t *testing.T) { readBesides(t, write) })
	}
}

func readBesides(t *testing.T, write func(context.Context, client.Client) error) {
	t.Helper()

	var meanwhile func()

	api := interceptor.NewClient(fake.NewClientBuilder().WithObjects(secret("a")).Build(), interceptor.Funcs{
		Get: func(
			ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption,
		) error {
			err := c.Get(ctx, key, o, opts...)
			if do := meanwhile; do != nil {
				meanwhile = nil

				do()
			}

			return err
		},
	})
	c := harness.NewMemory().Remembering(api)

	meanwhile = func() {
		if err := write(t.Context(), c); err != nil {
			t.Error(err)
		}
	}

	for _, want := range []string{"", "meanwhile"} {
		s := &corev1.Secret{}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(secret("a")), s); err != nil {
			t.Fatal(err)
		}

		if got := s.Labels["written"]; got != want {
			t.Errorf("read %q, want %q", got, want)
		}
	}
}
