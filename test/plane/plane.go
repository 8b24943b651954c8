// Package plane gives tests a real API server, with a namespace for each test.
package plane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
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
	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/wait"
)

// Plane is the management plane of the tests of a package.
type Plane struct {
	*management.Plane

	// Scheme knows every kind that the tests read or write.
	Scheme *runtime.Scheme
	// Dir is a folder of the package's own, which goes with it.
	Dir string
}

// Environment is the variable that tells tests of a management plane to attach to, as "ADDRESS DIRECTORY".
// hack/testplane sets it.
const Environment = "TALOS_OPERATOR_TEST_PLANE"

// Runner runs the tests of a package, as testing.M does.
type Runner interface {
	// Run returns the exit code.
	Run() int
}

// Main runs the tests of a package with a management plane, and ends the process. It is for TestMain. The plane is the
// one that all packages of this run share, or one of the package's own where there is none, as when a package is tested
// by itself: tests keep to namespaces of their own. What is given as after runs when the tests have ended.
func Main(m Runner, into **Plane, after ...func()) {
	ctrl.SetLogger(logr.Discard())

	code, err := run(m, into, after)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)

		code = 1
	}

	os.Exit(code)
}

func run(m Runner, into **Plane, after []func()) (int, error) {
	dir, err := os.MkdirTemp("", "talos-operator-plane-")
	if err != nil {
		return 0, fmt.Errorf("making a folder for the tests of a package: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()

	p, end, err := Open(dir)
	if err != nil {
		return 0, err
	}
	defer end()

	*into = p

	defer func() {
		for _, f := range after {
			f()
		}
	}()

	return m.Run(), nil
}

// Open returns the shared management plane, or starts one in a directory. The directory is the Dir of the plane either
// way.
func Open(dir string) (p *Plane, end func(), err error) {
	scheme := runtime.NewScheme()

	err = errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme),
		vitistackv1alpha1.AddToScheme(scheme))
	if err != nil {
		return nil, nil, fmt.Errorf("building the scheme: %w", err)
	}

	if address, shared, ok := strings.Cut(os.Getenv(Environment), " "); ok {
		attached, err := management.Attach(shared, address)
		if err != nil {
			return nil, nil, err
		}

		return &Plane{Plane: attached, Scheme: scheme, Dir: dir}, func() {}, nil
	}

	own, end, err := Start(dir)
	if err != nil {
		return nil, nil, err
	}

	return &Plane{Plane: own, Scheme: scheme, Dir: dir}, end, nil
}

// Start starts a management plane at a free address.
func Start(dir string) (p *management.Plane, end func(), err error) {
	subnet, release, err := loopback.ReserveSubnet()
	if err != nil {
		return nil, nil, err
	}

	p, err = management.Start(context.Background(), management.Options{
		Dir: filepath.Join(dir, "management"), Address: subnet + ".1",
	})
	if err != nil {
		release()

		return nil, nil, err
	}

	return p, func() {
		p.Kill()
		release()
	}, nil
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

// userRoles are the roles that Kubernetes has for users in a namespace: each has the rights of those before it.
var userRoles = []string{"view", "edit", "admin"}

// User is the name of the user of UserAccess.
func User(namespace, role string) string { return namespace + "-" + role }

// UserAccess is that of a user with one of the roles view, edit and admin of Kubernetes in a namespace, and without
// rights elsewhere. The roles have what their labels aggregate: nothing runs here that does that, so the parts are
// bound.
func (p *Plane) UserAccess(t *testing.T, role, namespace string) *rest.Config {
	t.Helper()

	admin, user := p.Admin(t), User(namespace, role)
	until := slices.Index(userRoles, role)

	for _, r := range userRoles[:until+1] {
		parts := &rbacv1.ClusterRoleList{}

		err := admin.List(t.Context(), parts, client.MatchingLabels{rbacv1.GroupName + "/aggregate-to-" + r: "true"})
		if err != nil {
			t.Fatal(err)
		}

		for i := range parts.Items {
			err := admin.Create(t.Context(), &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "user-"},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: parts.Items[i].Name},
				Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}

	cfg, err := p.User(user)
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

	wait.For(t, "the audit log has everything", func(context.Context) error {
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
