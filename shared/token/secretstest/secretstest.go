// Package secretstest simulates AWS Secrets Manager for tests: a server with its
// protocol, and the real SDK client for it.
//
// It guarantees the behavior that Payhook relies on. A secret without a value answers
// like one that does not exist. A put makes the value AWSCURRENT and the previous one
// AWSPREVIOUS. A put with a known ClientRequestToken does nothing if the value is the
// same, and fails if it is not. Error texts contain ARNs, like the real ones.
//
// A secret has at most [MaxVersions] versions. A put beyond that removes the oldest
// version that has no label and is at least [MinAge] old, and fails with
// LimitExceededException if there is none (AWS, "AWS Secrets Manager quotas" in the
// Secrets Manager User Guide).
package secretstest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
)

const (
	// MaxVersions is the quota of versions per secret.
	MaxVersions = 100
	// MinAge is the age up to which a version is never removed.
	MinAge = 24 * time.Hour
)

// Call is a request to the server.
type Call struct {
	Operation          string // GetSecretValue or PutSecretValue
	SecretID           string
	ClientRequestToken string
}

// Server simulates Secrets Manager. It is safe for concurrent use.
type Server struct {
	*httptest.Server
	// Before, if set, is called before each request is processed. A code that is not
	// empty, such as AccessDeniedException, makes the request fail with that status. With
	// status 200, the request is processed but its response is lost.
	Before func(Call) (status int, code string)
	// Now is the clock for the times of versions; time.Now if nil. It must be set before
	// the first version.
	Now func() time.Time

	tb      testing.TB
	mu      sync.Mutex
	secrets map[string]*secret
	calls   []Call
}

type secret struct {
	versions []version // by creation; the last is AWSCURRENT, the one before AWSPREVIOUS
	values   []string  // of all versions, including removed ones
}

type version struct {
	id, value string
	created   time.Time
}

// add makes a version AWSCURRENT. It reports false if the quota does not allow it.
func (s *secret) add(v version) bool {
	versions := append(slices.Clone(s.versions), v)
	if len(versions) > MaxVersions {
		if versions[0].created.After(v.created.Add(-MinAge)) {
			return false
		}
		versions = versions[1:]
	}
	s.versions, s.values = versions, append(s.values, v.value)
	return true
}

// New starts a Server without secrets. It stops when the test ends.
func New(tb testing.TB) *Server {
	s := &Server{tb: tb, secrets: map[string]*secret{}}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	tb.Cleanup(s.Close)
	return s
}

// SDK returns a new SDK client of the server, which retries without a delay.
func (s *Server) SDK() *secretsmanager.Client {
	return secretsmanager.New(secretsmanager.Options{
		Region:       "eu-central-1",
		BaseEndpoint: aws.String(s.URL),
		Credentials:  credentials.NewStaticCredentialsProvider("id", "secret", ""),
		HTTPClient:   s.Server.Client(),
		Retryer:      immediate{aws.NopRetryer{}},
	})
}

// immediate makes three attempts, like the SDK's standard retryer, but without a delay.
type immediate struct{ aws.Retryer }

func (immediate) IsErrorRetryable(err error) bool {
	return strings.Contains(err.Error(), "InternalServiceError")
}
func (immediate) MaxAttempts() int                             { return 3 }
func (immediate) RetryDelay(int, error) (time.Duration, error) { return 0, nil }
func (immediate) GetInitialToken() func(error) error           { return func(error) error { return nil } }

// Create creates a secret without a value, or removes the value of an existing one.
func (s *Server) Create(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.secrets[name] = &secret{}
}

func (s *Server) now() time.Time {
	if s.Now != nil {
		return s.Now()
	}
	return time.Now()
}

// Put stores a value in a secret, like a person in the console. The test fails if the
// quota does not allow it.
func (s *Server) Put(name, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.secrets[name] == nil {
		s.secrets[name] = &secret{}
	}
	secret := s.secrets[name]
	if !secret.add(version{fmt.Sprint("console-", len(secret.values)), value, s.now()}) {
		s.tb.Errorf("secretstest: %s has %d versions, none of them older than %s", name, MaxVersions, MinAge)
	}
}

// Values returns all values that a secret has had; the last one is current.
func (s *Server) Values(name string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.secrets[name].values)
}

// Versions returns the current number of versions of a secret.
func (s *Server) Versions(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.secrets[name].versions)
}

// Calls returns the requests of an operation, including failed ones.
func (s *Server) Calls(operation string) []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.calls), func(c Call) bool { return c.Operation != operation })
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	_, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), "secretsmanager.")
	var in struct {
		SecretID           string `json:"SecretId"`
		SecretString       string
		ClientRequestToken string
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil || r.Method != http.MethodPost {
		fail(w, http.StatusBadRequest, "SerializationException")
		return
	}
	call := Call{operation, in.SecretID, in.ClientRequestToken}
	s.mu.Lock()
	s.calls = append(s.calls, call)
	s.mu.Unlock()
	lost := ""
	if s.Before != nil {
		status, code := s.Before(call)
		if code != "" && status != http.StatusOK {
			fail(w, status, code)
			return
		}
		lost = code
	}
	s.mu.Lock()
	out, code := s.do(operation, in.SecretID, in.SecretString, in.ClientRequestToken)
	s.mu.Unlock()
	switch {
	case code != "":
		fail(w, http.StatusBadRequest, code)
	case lost != "":
		fail(w, http.StatusInternalServerError, lost)
	default:
		w.Header().Set("Content-Type", "application/x-amz-json-1.1")
		_ = json.NewEncoder(w).Encode(out)
	}
}

func (s *Server) do(operation, name, value, id string) (out map[string]any, code string) {
	secret := s.secrets[name]
	if secret == nil {
		return nil, "ResourceNotFoundException"
	}
	out = map[string]any{"ARN": arn(name), "Name": name}
	switch operation {
	case "GetSecretValue":
		if len(secret.versions) == 0 {
			return nil, "ResourceNotFoundException"
		}
		current := secret.versions[len(secret.versions)-1]
		out["SecretString"], out["VersionId"] = current.value, current.id
	case "PutSecretValue":
		if len(id) < 32 || len(id) > 64 || value == "" || len(value) > 65536 {
			return nil, "InvalidParameterException"
		}
		i := slices.IndexFunc(secret.versions, func(v version) bool { return v.id == id })
		switch {
		case i < 0:
			if !secret.add(version{id, value, s.now()}) {
				return nil, "LimitExceededException"
			}
		case secret.versions[i].value != value:
			return nil, "ResourceExistsException"
		}
		out["VersionId"] = id
	default:
		return nil, "UnknownOperationException"
	}
	return out, ""
}

func arn(name string) string {
	return "arn:aws:secretsmanager:eu-central-1:123456789012:secret:" + name + "-AbCdEf"
}

func fail(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{
		"__type": code,
		"Message": "User: arn:aws:sts::123456789012:assumed-role/r/f is not authorized to perform this on " +
			arn("any"),
	})
}
