package awstest

import (
	"context"
	"net/http/httptest"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/ssm/types"
)

// ParameterStore is a server with the protocol of Parameter Store for one parameter, a SecureString
// in the tier Intelligent-Tiering. It is safe for concurrent use.
//
// Values and keys are those of the last 100 versions: a put removes the oldest one (AWS,
// "PutParameter" in the Systems Manager API reference). It answers no more than 3 puts a second (AWS,
// "AWS Systems Manager endpoints and quotas" in the AWS General Reference).
type ParameterStore struct {
	*httptest.Server
	// Before, if set, is called before each operation. With a code, such as AccessDeniedException, the call fails.
	Before func(operation string) (code string)

	mu       sync.Mutex
	name     string
	versions []ParameterVersion
	puts     []time.Time // of all versions
}

// ParameterVersion is a version of the parameter.
type ParameterVersion struct{ Value, KeyID string }

// NewParameterStore starts a ParameterStore without a version of the parameter with that name. It
// stops when the test ends.
func NewParameterStore(tb interface{ Cleanup(func()) }, name string) *ParameterStore {
	s := &ParameterStore{name: name}
	s.Server = httptest.NewServer(Handler(s))
	tb.Cleanup(s.Close)
	return s
}

// SDK returns a new SDK client of the server, which retries without a delay.
func (s *ParameterStore) SDK() *ssm.Client {
	return ssm.New(ssm.Options{Region: "eu-central-1", BaseEndpoint: aws.String(s.URL),
		Credentials: credentials.NewStaticCredentialsProvider("id", "secret", ""), HTTPClient: s.Client(),
		Retryer: retry.AddWithMaxBackoffDelay(retry.NewStandard(), 0)})
}

// Versions returns the versions; the last one is current. Puts returns the times of all puts.
func (s *ParameterStore) Versions() (versions []ParameterVersion, puts []time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.versions), slices.Clone(s.puts)
}

// GetParameter returns the current value, which is encrypted unless WithDecryption is true.
func (s *ParameterStore) GetParameter(_ context.Context, in *ssm.GetParameterInput,
	_ ...func(*ssm.Options)) (*ssm.GetParameterOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if code := s.before("GetParameter"); code != "" {
		return nil, denied(code, "not authorized: arn:aws:ssm:eu-central-1:123456789012:parameter"+s.name)
	}
	if aws.ToString(in.Name) != s.name || len(s.versions) == 0 {
		return nil, denied("ParameterNotFound", "")
	}
	value := s.versions[len(s.versions)-1].Value
	if !aws.ToBool(in.WithDecryption) {
		value = "AQICAHh"
	}
	return &ssm.GetParameterOutput{Parameter: &types.Parameter{Name: in.Name, Value: &value}}, nil
}

// PutParameter stores a new version.
func (s *ParameterStore) PutParameter(_ context.Context, in *ssm.PutParameterInput,
	_ ...func(*ssm.Options)) (*ssm.PutParameterOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	code, value, now := s.before("PutParameter"), aws.ToString(in.Value), time.Now()
	switch n := len(s.puts); {
	case code != "":
	case aws.ToString(in.Name) != s.name, in.Type != types.ParameterTypeSecureString, value == "",
		len(value) > 4<<10 && in.Tier != types.ParameterTierIntelligentTiering, len(value) > 8<<10:
		code = "ValidationException"
	case len(s.versions) > 0 && !aws.ToBool(in.Overwrite):
		code = "ParameterAlreadyExists"
	case n >= 3 && now.Sub(s.puts[n-3]) < time.Second:
		code = "ThrottlingException"
	}
	if code != "" {
		return nil, denied(code, "arn:aws:ssm:eu-central-1:123456789012:parameter"+s.name)
	}
	s.puts = append(s.puts, now)
	s.versions = append(s.versions, ParameterVersion{value, aws.ToString(in.KeyId)})
	s.versions = s.versions[max(0, len(s.versions)-maxVersions):]
	return &ssm.PutParameterOutput{Version: int64(len(s.puts))}, nil
}

func (s *ParameterStore) before(operation string) string {
	if s.Before == nil {
		return ""
	}
	return s.Before(operation)
}
