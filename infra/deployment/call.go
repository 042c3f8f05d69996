package deployment

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
)

// get calls an operation of a service of the emulator as its root, for IAM, whose client takes long to compile. A
// connection that the emulator closed before it answered is opened again.
func get(ctx context.Context, endpoint, region, service, path string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint+path, nil)
	if err != nil {
		return nil, err
	}
	root, err := EmulatorConfig(endpoint, region).Credentials.Retrieve(ctx)
	if err != nil {
		return nil, err
	}
	empty := sha256.Sum256(nil)
	if err := v4.NewSigner().SignHTTP(ctx, root, r, hex.EncodeToString(empty[:]), service, region,
		time.Now()); err != nil {
		return nil, err
	}
	answer, err := emulated.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, answer.Status, text)
	}
	return text, err
}

// Deny denies an action on a resource to the functions of the local run, with a policy of the roles of the stack. The
// emulator enforces it at once.
func (d *Deployment) Deny(ctx context.Context, name, action, resource string) error {
	return d.rolePolicies(ctx, url.Values{"Action": {"PutRolePolicy"}, "PolicyName": {name},
		"PolicyDocument": {fmt.Sprintf(`{"Version":"2012-10-17","Statement":[{"Effect":"Deny","Action":%q,`+
			`"Resource":%q}]}`, action, resource)}})
}

// Allow ends what [Deployment.Deny] began under a name, if it did.
func (d *Deployment) Allow(ctx context.Context, name string) error {
	return d.rolePolicies(ctx, url.Values{"Action": {"DeleteRolePolicy"}, "PolicyName": {name}})
}

// rolePolicies calls an operation of IAM for each role of the stack.
func (d *Deployment) rolePolicies(ctx context.Context, form url.Values) error {
	roles, err := Resources(ctx, cloudformation.NewFromConfig(d.AWS), d.Stack, "AWS::IAM::Role")
	if err != nil {
		return err
	}
	for _, role := range roles {
		form.Set("Version", "2010-05-08")
		form.Set("RoleName", role)
		text, err := get(ctx, d.Endpoint, d.Region, "iam", "/?"+form.Encode())
		if err != nil && !strings.Contains(string(text), "NoSuchEntity") {
			return err
		}
	}
	return nil
}
