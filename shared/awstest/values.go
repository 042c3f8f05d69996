package awstest

import (
	"cmp"
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"
)

// Values is a server with the protocols of Secrets Manager and Parameter Store. It is safe for concurrent use.
//
// A secret without a value answers like one that does not exist. It has at most 100 versions: a put beyond that removes
// the oldest one, and fails if that is younger than a day (AWS, "AWS Secrets Manager quotas" in the Secrets Manager
// User Guide). Parameter Store answers no more than 3 puts a second (AWS, "AWS Systems Manager endpoints and quotas" in
// the AWS General Reference). A value of more than 4 KB needs the tier Intelligent-Tiering, and has at most 8 KB (AWS,
// "Managing parameter tiers" in the Systems Manager User Guide).
type Values struct {
	*Wire
	mu       sync.Mutex
	versions map[string][]version // by creation; the last is current
}

type version struct {
	value   string
	created time.Time
}

// NewValues starts a server without secrets and parameters. It stops when the test ends.
func NewValues(tb testing.TB) *Values {
	v := &Values{versions: map[string][]version{}}
	v.Wire = NewWire(tb, v.answer)
	return v
}

// Create creates a secret with that value; "" for none.
func (v *Values) Create(name, value string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.versions[name] = slices.Repeat([]version{{value: value}}, min(1, len(value)))
}

// input is that of all operations.
type input struct {
	SecretID                  string `json:"SecretId"`
	SecretString              string
	ClientRequestToken        string
	Name, Value, Type, Tier   string
	Overwrite, WithDecryption bool
}

func (v *Values) answer(r Request) string {
	var in input
	if json.Unmarshal([]byte(r.Body), &in) != nil {
		return Refused("SerializationException")
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	name := cmp.Or(in.SecretID, in.Name)
	versions, exists := v.versions[name]
	var code string
	switch none := len(versions) == 0; {
	case r.Operation == "GetParameter" && none:
		code = "ParameterNotFound"
	case r.Operation == "GetSecretValue" && none, r.Operation == "PutSecretValue" && !exists:
		code = "ResourceNotFoundException"
	case r.Operation == "PutSecretValue":
		versions, code = putSecret(versions, in, r.At)
	case r.Operation == "PutParameter":
		versions, code = putParameter(versions, in, r.At)
	default:
		value := versions[len(versions)-1].value
		if in.Name != "" && !in.WithDecryption {
			value = "AQICAHh"
		}
		answer, _ := json.Marshal(map[string]any{"SecretString": value, "Parameter": map[string]string{"Value": value}})
		return string(answer)
	}
	if code != "" {
		return Refused(code)
	}
	v.versions[name] = versions
	return "{}"
}

// putSecret returns the versions of a secret after a put, or the code of an error.
func putSecret(old []version, in input, now time.Time) (versions []version, code string) {
	switch n := len(in.ClientRequestToken); {
	case n < 32 || n > 64 || in.SecretString == "" || len(in.SecretString) > 65536:
		return nil, "InvalidParameterException"
	case len(old) == 100 && now.Sub(old[0].created) < 24*time.Hour:
		return nil, "LimitExceededException"
	case len(old) == 100:
		old = old[1:]
	}
	return append(old, version{in.SecretString, now}), ""
}

// putParameter returns the versions of a parameter after a put, or the code of an error.
func putParameter(old []version, in input, now time.Time) (versions []version, code string) {
	n := len(old)
	switch {
	case in.Type != "SecureString", in.Value == "", len(in.Value) > 8<<10,
		len(in.Value) > 4<<10 && in.Tier != "Intelligent-Tiering":
		return nil, "ValidationException"
	case n > 0 && !in.Overwrite:
		return nil, "ParameterAlreadyExists"
	case n >= 3 && now.Sub(old[n-3].created) < time.Second:
		return nil, "ThrottlingException"
	}
	return append(old, version{in.Value, now}), ""
}
