package management

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"time"
)

// AuditedGroup is the group of users whose reads are logged as well as their writes. No role is bound to it, so its
// members have no right because of it. Reads are many: those of other users are not logged.
const AuditedGroup = "talos-lab:audited"

// Request is one request of a member of AuditedGroup.
type Request struct {
	User string
	// Verb is that of RBAC: get, list, watch, create, update, patch, delete or deletecollection.
	Verb string
	// Group is the API group, empty for the core group; Resource is plural, with its subresource: machines/status.
	Group, Resource, Namespace, Name string
	// URL is the path of a request that is about no resource.
	URL string
	// Forbidden: it was refused for want of a right. That may be another one than that of the verb: who applies an object
	// that does not exist has to have create, and who sets an owner may need a right to that one.
	Forbidden bool
	// Created: it made an object. An apply does that with the verb patch.
	Created bool
}

// String shows a request in one line.
func (r Request) String() string {
	if r.Resource == "" {
		return r.Verb + " " + r.URL
	}

	return fmt.Sprintf("%s %s of the API group %q, object %q, namespace %q",
		r.Verb, r.Resource, r.Group, r.Name, r.Namespace)
}

// Requests calls visit for each request of the members of AuditedGroup, oldest first. A watch is logged when it ends.
func (p *Plane) Requests(visit func(Request)) error {
	files, err := p.auditLogs(time.Time{})
	if err != nil {
		return err
	}

	for _, file := range files {
		if err := readRequests(file, visit); err != nil {
			return fmt.Errorf("reading the requests in the audit log %s: %w", file, err)
		}
	}

	return nil
}

func readRequests(file string, visit func(Request)) error {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	if err != nil {
		return err
	}
	defer f.Close()

	lines := bufio.NewReader(f)

	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			// What has no end is being written.
			return nil
		}

		if err != nil {
			return err
		}

		if !bytes.Contains(line, []byte(AuditedGroup)) {
			continue
		}

		r, err := parseRequest(line)
		if err != nil {
			return err
		}

		visit(r)
	}
}

// terminating is what the API server says of new objects in a namespace that is being deleted, with the status of a
// request that is forbidden.
const terminating = "because it is being terminated"

func parseRequest(line []byte) (Request, error) {
	var event struct {
		Verb      string
		URL       string `json:"requestURI"`
		User      struct{ Username string }
		ObjectRef struct {
			Group       string `json:"apiGroup"`
			Resource    string
			Subresource string
			Namespace   string
			Name        string
		}
		Response struct {
			Code    int
			Message string
		} `json:"responseStatus"`
	}

	if err := json.Unmarshal(line, &event); err != nil {
		return Request{}, fmt.Errorf("reading a line of the audit log: %w", err)
	}

	url, _, _ := strings.Cut(event.URL, "?")
	ref := event.ObjectRef

	return Request{
		User: event.User.Username, Verb: event.Verb, Group: ref.Group,
		Resource:  withSubresource(ref.Resource, ref.Subresource),
		Namespace: ref.Namespace, Name: ref.Name, URL: url,
		Forbidden: event.Response.Code == http.StatusForbidden && !strings.Contains(event.Response.Message, terminating),
		Created:   event.Response.Code == http.StatusCreated,
	}, nil
}
