package awstest

import (
	"cmp"
	"context"
	"fmt"
	"net/http/httptest"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
)

const (
	maxVersions   = 100
	minVersionAge = 24 * time.Hour // until then, a version is never removed
)

// SecretsManager is a server with the protocol of Secrets Manager. It is safe for
// concurrent use.
//
// A secret without a value answers like one that does not exist. A put with a known
// ClientRequestToken does nothing if the value is the same, and fails if it is not. A secret has
// at most 100 versions: a put beyond that removes the oldest one, and fails if that is younger
// than a day (AWS, "AWS Secrets Manager quotas" in the Secrets Manager User Guide). Error texts
// contain ARNs, like the real ones.
type SecretsManager struct {
	*httptest.Server
	// Before, if set, is called before each call is processed. With a code, such as
	// AccessDeniedException, the call fails. If it also returns true, the call is processed
	// and its answer is lost.
	Before func(SecretCall) (code string, lost bool)

	mu      sync.Mutex
	secrets map[string]*secret
	calls   []SecretCall
}

// SecretCall is a call of [SecretsManager].
type SecretCall struct {
	Operation          string // GetSecretValue or PutSecretValue
	SecretID           string
	ClientRequestToken string
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
	if len(versions) > maxVersions {
		if versions[0].created.After(v.created.Add(-minVersionAge)) {
			return false
		}
		versions = versions[1:]
	}
	s.versions, s.values = versions, append(s.values, v.value)
	return true
}

// NewSecretsManager starts a SecretsManager without secrets. It stops when the test ends.
func NewSecretsManager(tb interface{ Cleanup(func()) }) *SecretsManager {
	s := &SecretsManager{secrets: map[string]*secret{}}
	s.Server = httptest.NewServer(Handler(s))
	tb.Cleanup(s.Close)
	return s
}

// SDK returns a new SDK client of the server, which retries without a delay.
func (s *SecretsManager) SDK() *secretsmanager.Client {
	retryer := retry.AddWithErrorCodes(retry.NewStandard(), "InternalServiceError")
	return secretsmanager.New(secretsmanager.Options{
		Region:       "eu-central-1",
		BaseEndpoint: aws.String(s.URL),
		Credentials:  credentials.NewStaticCredentialsProvider("id", "secret", ""),
		HTTPClient:   s.Server.Client(),
		Retryer:      retry.AddWithMaxBackoffDelay(retryer, 0),
	})
}

// Create creates a secret without a value, or removes the value of an existing one.
func (s *SecretsManager) Create(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.secrets[name] = &secret{}
}

// Put stores a value in a secret, like a person in the console. It panics if the quota
// does not allow it.
func (s *SecretsManager) Put(name, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.secrets[name] == nil {
		s.secrets[name] = &secret{}
	}
	secret := s.secrets[name]
	if !secret.add(version{fmt.Sprint("console-", len(secret.values)), value, time.Now()}) {
		panic("awstest: the secret " + name + " has too many versions")
	}
}

// Values returns all values that a secret has had; the last one is current.
func (s *SecretsManager) Values(name string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.secrets[name].values)
}

// Calls returns the calls of an operation, including failed ones.
func (s *SecretsManager) Calls(operation string) []SecretCall {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.calls), func(c SecretCall) bool { return c.Operation != operation })
}

// GetSecretValue returns the current value of a secret.
func (s *SecretsManager) GetSecretValue(_ context.Context, in *secretsmanager.GetSecretValueInput,
	_ ...func(*secretsmanager.Options)) (out *secretsmanager.GetSecretValueOutput, err error) {
	call := SecretCall{"GetSecretValue", aws.ToString(in.SecretId), ""}
	err = s.do(call, func(secret *secret) string {
		if len(secret.versions) == 0 {
			return "ResourceNotFoundException"
		}
		current := secret.versions[len(secret.versions)-1]
		out = &secretsmanager.GetSecretValueOutput{ARN: aws.String(secretARN(call.SecretID)), Name: in.SecretId,
			SecretString: &current.value, VersionId: &current.id}
		return ""
	})
	return out, err
}

// PutSecretValue stores a new version of a secret.
func (s *SecretsManager) PutSecretValue(_ context.Context, in *secretsmanager.PutSecretValueInput,
	_ ...func(*secretsmanager.Options)) (*secretsmanager.PutSecretValueOutput, error) {
	id, value := aws.ToString(in.ClientRequestToken), aws.ToString(in.SecretString)
	call := SecretCall{"PutSecretValue", aws.ToString(in.SecretId), id}
	err := s.do(call, func(secret *secret) string {
		if len(id) < 32 || len(id) > 64 || value == "" || len(value) > 65536 {
			return "InvalidParameterException"
		}
		switch i := slices.IndexFunc(secret.versions, func(v version) bool { return v.id == id }); {
		case i >= 0 && secret.versions[i].value != value:
			return "ResourceExistsException"
		case i < 0 && !secret.add(version{id, value, time.Now()}):
			return "LimitExceededException"
		}
		return ""
	})
	return &secretsmanager.PutSecretValueOutput{ARN: aws.String(secretARN(call.SecretID)), Name: in.SecretId,
		VersionId: &id}, err
}

// do records a call and processes it, unless Before makes it fail.
func (s *SecretsManager) do(call SecretCall, process func(*secret) (code string)) error {
	s.mu.Lock()
	s.calls = append(s.calls, call)
	before := s.Before
	s.mu.Unlock()
	code, lost := "", true
	if before != nil {
		code, lost = before(call)
	}
	if code == "" || lost {
		s.mu.Lock()
		defer s.mu.Unlock()
		if secret := s.secrets[call.SecretID]; secret == nil {
			code = "ResourceNotFoundException"
		} else {
			code = cmp.Or(process(secret), code)
		}
	}
	if code == "" {
		return nil
	}
	return denied(code, "User: arn:aws:sts::123456789012:assumed-role/r/f is not authorized: "+secretARN("any"))
}

func secretARN(name string) string {
	return "arn:aws:secretsmanager:eu-central-1:123456789012:secret:" + name + "-AbCdEf"
}
