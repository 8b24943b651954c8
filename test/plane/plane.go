// Package plane gives the tests of one package a real API server: one for the package, a namespace for each test.
package plane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/lab/management"
)

// Plane is the management plane of the tests of a package.
type Plane struct {
	*management.Plane

	// Scheme knows every kind that the tests read or write.
	Scheme *runtime.Scheme
}

// Main starts a management plane at a loopback address, runs the tests of the package and ends the process. It is for
// TestMain.
func Main(m *testing.M, address string, into **Plane) {
	ctrl.SetLogger(logr.Discard())

	code, err := run(m, address, into)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)

		code = 1
	}

	os.Exit(code)
}

func run(m *testing.M, address string, into **Plane) (int, error) {
	dir, err := os.MkdirTemp("", "talos-operator-plane-")
	if err != nil {
		return 0, fmt.Errorf("making a folder for the management plane: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()

	scheme := runtime.NewScheme()

	err = errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme),
		vitistackv1alpha1.AddToScheme(scheme))
	if err != nil {
		return 0, fmt.Errorf("building the scheme: %w", err)
	}

	p, err := management.Start(context.Background(), management.Options{Dir: dir, Address: address})
	if err != nil {
		return 0, err
	}
	defer p.Kill()

	*into = &Plane{Plane: p, Scheme: scheme}

	return m.Run(), nil
}

// Admin is a client that may do everything.
func (p *Plane) Admin(t *testing.T) client.WithWatch {
	t.Helper()

	return p.client(t, p.Config())
}

// Manager is a client with the roles of the operator and no others.
func (p *Plane) Manager(t *testing.T) client.WithWatch {
	t.Helper()

	return p.client(t, p.ManagerAccess(t))
}

// ManagerAccess is the configuration of Manager.
func (p *Plane) ManagerAccess(t *testing.T) *rest.Config {
	t.Helper()

	cfg, err := p.ManagerConfig()
	if err != nil {
		t.Fatal(err)
	}

	return cfg
}

func (p *Plane) client(t *testing.T, cfg *rest.Config) client.WithWatch {
	t.Helper()

	c, err := client.NewWithWatch(cfg, client.Options{Scheme: p.Scheme})
	if err != nil {
		t.Fatal(err)
	}

	return c
}

// Namespace makes a namespace for one test.
func (p *Plane) Namespace(t *testing.T) string {
	t.Helper()

	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	if err := p.Admin(t).Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}

	return ns.Name
}

// NoWrites fails the test if the operator wrote anything in the namespace, or tried to, while do ran.
func (p *Plane) NoWrites(t *testing.T, namespace string, do func()) {
	t.Helper()

	since := time.Now()

	do()

	if lines := p.writes(t, namespace, since); len(lines) > 0 {
		t.Errorf("the operator wrote:\n%s", strings.Join(lines, "\n"))
	}
}

// writes of the operator in a namespace. A refused deletion marks the end of them: once that one is in the audit log,
// the ones before it are.
func (p *Plane) writes(t *testing.T, namespace string, since time.Time) []string {
	t.Helper()

	const marker = "end-of-writes"

	end := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: marker}}
	if err := p.Manager(t).Delete(t.Context(), end); !apierrors.IsForbidden(err) {
		t.Fatalf("the operator may delete ConfigMaps: %v", err)
	}

	var lines []string

	Eventually(t, "the audit log has everything", func(context.Context) error {
		lines = nil

		writes, err := p.Writes(management.ManagerUser, since)
		if err != nil {
			return err
		}

		for _, w := range writes {
			switch {
			case w.Namespace == namespace && w.Name == marker:
				return nil
			case w.Namespace == namespace:
				lines = append(lines, w.String())
			}
		}

		return errors.New("it has not")
	})

	return lines
}

// Eventually waits until check succeeds, for half a minute.
func Eventually(t *testing.T, what string, check func(context.Context) error) {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()

	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()

	for {
		err := check(ctx)
		if err == nil {
			return
		}

		select {
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, err)
		case <-tick.C:
		}
	}
}
