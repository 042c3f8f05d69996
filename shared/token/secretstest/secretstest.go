// Package secretstest is AWS Secrets Manager for tests: a server that speaks
// its protocol, and the real SDK client for it.
//
// It guarantees, of what Payhook relies on: a secret without a value answers
// like one that does not exist; a put makes the value AWSCURRENT and what was
// there AWSPREVIOUS; a put under a ClientRequestToken that is known does
// nothing if the value is the same, and fails if it is not. Its error texts
// name ARNs, as the real ones do.
package secretstest

import (
	"encoding/json"
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

// Call is a request that the server got.
type Call struct {
	Operation          string // GetSecretValue or PutSecretValue
	SecretID           string
	ClientRequestToken string
}

// Server is Secrets Manager. It is safe for concurrent use.
type Server struct {
	*httptest.Server
	// Before, if set, is called with each request before anything else
	// happens. A code that is not empty, such as AccessDeniedException, fails
	// the request with that status; a code for status 200 loses the answer of a
	// request that was done.
	Before func(Call) (status int, code string)

	mu      sync.Mutex
	secrets map[string]*secret
	calls   []Call
}

type secret struct {
	versions []version // the last is AWSCURRENT
}

type version struct{ id, value string }

// New starts a server without secrets, which stops with the test.
func New(tb testing.TB) *Server {
	s := &Server{secrets: map[string]*secret{}}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	tb.Cleanup(s.Close)
	return s
}

// SDK returns a new SDK client of the server, which waits for nothing between
// its tries.
func (s *Server) SDK() *secretsmanager.Client {
	return secretsmanager.New(secretsmanager.Options{
		Region:       "eu-central-1",
		BaseEndpoint: aws.String(s.URL),
		Credentials:  credentials.NewStaticCredentialsProvider("id", "secret", ""),
		HTTPClient:   s.Server.Client(),
		Retryer:      immediate{aws.NopRetryer{}},
	})
}

// immediate tries three times, as the SDK's standard does, and at once.
type immediate struct{ aws.Retryer }

func (immediate) IsErrorRetryable(err error) bool {
	return strings.Contains(err.Error(), "InternalServiceError")
}
func (immediate) MaxAttempts() int                             { return 3 }
func (immediate) RetryDelay(int, error) (time.Duration, error) { return 0, nil }
func (immediate) GetInitialToken() func(error) error           { return func(error) error { return nil } }

// Create makes a secret that has no value yet, or empties one.
func (s *Server) Create(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.secrets[name] = &secret{}
}

// Put gives a secret a value, as a person at the console would.
func (s *Server) Put(name, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.secrets[name] == nil {
		s.secrets[name] = &secret{}
	}
	s.secrets[name].versions = append(s.secrets[name].versions, version{"console", value})
}

// Values returns all values that a secret ever had; the last one is current.
func (s *Server) Values(name string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var values []string
	for _, v := range s.secrets[name].versions {
		values = append(values, v.value)
	}
	return values
}

// Calls returns the requests for an operation so far, failures included.
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
		if len(id) < 32 || len(value) > 65536 {
			return nil, "InvalidParameterException"
		}
		i := slices.IndexFunc(secret.versions, func(v version) bool { return v.id == id })
		switch {
		case i < 0:
			secret.versions = append(secret.versions, version{id, value})
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
		"__type":  code,
		"Message": "User: arn:aws:sts::123456789012:assumed-role/r/f is not authorized to perform this on " + arn("any"),
	})
}
