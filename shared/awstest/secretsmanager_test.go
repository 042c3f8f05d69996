package awstest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager/types"
)

func TestFullSecretAcceptsAVersionAfterADay(t *testing.T) {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	s := NewSecretsManager(t)
	s.now = func() time.Time { return now }
	s.Create("s")
	written := 0
	put := func() error {
		id, value := fmt.Sprintf("%032d", written), fmt.Sprint(written)
		_, err := s.SDK().PutSecretValue(t.Context(),
			&secretsmanager.PutSecretValueInput{SecretId: new("s"), ClientRequestToken: &id, SecretString: &value})
		if err == nil {
			written++
		}
		return err
	}
	isFull := func() {
		t.Helper()
		err := put()
		if _, full := errors.AsType[*types.LimitExceededException](err); !full {
			t.Fatalf("version %d: error = %v, want LimitExceededException", written+1, err)
		}
	}
	// One version a minute.
	for range maxVersions {
		if err := put(); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Minute)
	}
	isFull()

	// The first version is a nanosecond less than a day old.
	now = now.Add(minVersionAge - maxVersions*time.Minute - 1)
	isFull()
	got, err := s.SDK().GetSecretValue(t.Context(), &secretsmanager.GetSecretValueInput{SecretId: new("s")})
	if err != nil || *got.SecretString != "99" {
		t.Errorf("after a rejected put: %v, %v, want the value of the last accepted one", got, err)
	}

	now = now.Add(1)
	if err := put(); err != nil {
		t.Fatalf("with a version that is a day old: %v", err)
	}
	isFull()
	if n, values := len(s.secrets["s"].versions), len(s.Values("s")); n != maxVersions || values != maxVersions+1 {
		t.Errorf("%d versions and %d values, want %d and one more", n, values, maxVersions)
	}

	// Putting an existing version again is allowed in a full secret.
	id, value := fmt.Sprintf("%032d", 100), "100"
	if _, err := s.SDK().PutSecretValue(t.Context(),
		&secretsmanager.PutSecretValueInput{SecretId: new("s"), ClientRequestToken: &id,
			SecretString: &value}); err != nil {
		t.Errorf("the last version again: %v", err)
	}
}
