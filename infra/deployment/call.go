package deployment

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/smithy-go"
	smithytime "github.com/aws/smithy-go/time"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// Call sends a request to a service of AWS, and returns the body of the answer. It signs and retries as
// the SDK's clients do. It is for one or two operations of services whose clients take long to compile.
// The error of an answer is a [smithy.APIError].
func Call(ctx context.Context, cfg aws.Config, service, method, address string, body []byte) ([]byte, error) {
	var retryer aws.Retryer = retry.NewStandard()
	if cfg.Retryer != nil {
		retryer = cfg.Retryer()
	}
	for attempt := 1; ; attempt++ {
		answer, err := once(ctx, cfg, service, method, address, body)
		if err == nil || attempt >= retryer.MaxAttempts() || !retryer.IsErrorRetryable(err) {
			return answer, err
		}
		delay, errDelay := retryer.RetryDelay(attempt, err)
		if errDelay != nil || smithytime.SleepWithContext(ctx, delay) != nil {
			return nil, err
		}
	}
}

func once(ctx context.Context, cfg aws.Config, service, method, address string, body []byte) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if len(body) > 0 {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	credentials, err := cfg.Credentials.Retrieve(ctx)
	if err != nil {
		return nil, err
	}
	digest := sha256.Sum256(body)
	if err := v4.NewSigner().SignHTTP(ctx, credentials, r, hex.EncodeToString(digest[:]), service, cfg.Region,
		time.Now()); err != nil {
		return nil, err
	}
	var client aws.HTTPClient = http.DefaultClient
	if cfg.HTTPClient != nil {
		client = cfg.HTTPClient
	}
	answer, err := client.Do(r)
	if err != nil {
		return nil, &smithyhttp.RequestSendError{Err: err}
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, &smithyhttp.RequestSendError{Err: err}
	}
	if answer.StatusCode/100 != 2 {
		var failed struct {
			Error struct{ Code, Message string }
		}
		_ = xml.Unmarshal(text, &failed) // or JSON
		return nil, &smithyhttp.ResponseError{Response: &smithyhttp.Response{Response: answer},
			Err: &smithy.GenericAPIError{Code: cmp.Or(failed.Error.Code, answer.Status),
				Message: cmp.Or(failed.Error.Message, string(text))}}
	}
	return text, nil
}

// SetRolePolicy adds a policy to an IAM role, or removes it if document is "". If there is none to
// remove, that is no error.
func SetRolePolicy(ctx context.Context, cfg aws.Config, role, name, document string) error {
	action := "PutRolePolicy"
	if document == "" {
		action = "DeleteRolePolicy"
	}
	_, err := rolePolicy(ctx, cfg, action, role, name, document)
	return err
}

// HasRolePolicy reports whether an IAM role has a policy.
func HasRolePolicy(ctx context.Context, cfg aws.Config, role, name string) (bool, error) {
	return rolePolicy(ctx, cfg, "GetRolePolicy", role, name, "")
}

// rolePolicy calls an action about a policy of an IAM role. Without document, a missing policy is no error.
func rolePolicy(ctx context.Context, cfg aws.Config, action, role, name, document string) (found bool, err error) {
	// Each partition has one endpoint (AWS, "AWS Identity and Access Management endpoints and quotas":
	// https://docs.aws.amazon.com/general/latest/gr/iam-service.html).
	endpoint := "https://iam.amazonaws.com"
	switch {
	case cfg.BaseEndpoint != nil:
		endpoint = *cfg.BaseEndpoint
	case strings.HasPrefix(cfg.Region, "cn-"):
		endpoint, cfg.Region = "https://iam.cn-north-1.amazonaws.com.cn", "cn-north-1"
	case strings.HasPrefix(cfg.Region, "us-gov-"):
		endpoint, cfg.Region = "https://iam.us-gov.amazonaws.com", "us-gov-west-1"
	default:
		cfg.Region = "us-east-1"
	}
	form := url.Values{"Version": {"2010-05-08"}, "Action": {action}, "RoleName": {role}, "PolicyName": {name}}
	if document != "" {
		form.Set("PolicyDocument", document)
	}
	_, err = Call(ctx, cfg, "iam", http.MethodPost, endpoint+"/", []byte(form.Encode()))
	api, answered := errors.AsType[smithy.APIError](err)
	if answered && document == "" && strings.HasPrefix(api.ErrorCode(), "NoSuchEntity") {
		return false, nil
	}
	return err == nil, err
}
