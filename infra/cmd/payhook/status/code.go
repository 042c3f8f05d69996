package status

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"

	"payhook.example/infra/build"
	"payhook.example/shared/settings"
)

type functions interface {
	GetFunction(context.Context, *lambda.GetFunctionInput, ...func(*lambda.Options)) (*lambda.GetFunctionOutput, error)
	GetAlias(context.Context, *lambda.GetAliasInput, ...func(*lambda.Options)) (*lambda.GetAliasOutput, error)
}

// code compares the program of each function with a build of the current folder.
func code(ctx context.Context, d *stack, _ time.Time) ([]check, error) {
	here, err := build.Version(ctx)
	if err != nil {
		here = "unknown"
	}
	var differ []string
	builds := map[string]map[string][]byte{} // by architecture
	for _, name := range build.Names {
		if d.Functions[name] == "" {
			continue // it is not deployed
		}
		f, err := d.functions.GetFunction(ctx, &lambda.GetFunctionInput{FunctionName: aws.String(d.Functions[name])})
		if err != nil {
			return nil, err
		}
		arch := "amd64"
		if slices.Contains(f.Configuration.Architectures, types.ArchitectureArm64) {
			arch = "arm64"
		}
		if builds[arch] == nil {
			if builds[arch], err = d.build(arch); err != nil {
				first, _, _ := strings.Cut(err.Error(), "\n")
				return []check{{"code", notMeasured, first, "run it in a clone of Payhook, or in an app that uses it"}},
					nil
			}
		}
		difference, err := d.differs(ctx, name, f, builds[arch][name])
		if err != nil {
			return nil, fmt.Errorf("the function %s: %w", name, err)
		}
		if difference != "" {
			differ = append(differ, name+" "+difference)
		}
	}
	version := "built from " + here
	// The version of a stack has its tag as well, which go list does not show: v1.2.3, commit 0123456789ab.
	if d.Version != here && !strings.HasSuffix(d.Version, ", "+here) {
		version += ", the stack has " + d.Version
	}
	if differ == nil {
		return []check{{"code", ok, "every function is the same; " + version, ""}}, nil
	}
	return []check{
		{"code", attention, strings.Join(differ, ", ") + "; " + version, "run it in a clone at the version " +
			"of the stack, unmodified; if it still differs, deploy that version"},
	}, nil
}

// differs returns how a function differs from the program; "" for not at all.
func (d *stack) differs(ctx context.Context, name string, f *lambda.GetFunctionOutput, program []byte) (string, error) {
	same, err := matches(ctx, f, program)
	switch function, alias, ok := strings.Cut(d.Functions[name], ":"); {
	case err != nil:
		return "", err
	case !same:
		return "differs", nil
	case len(f.Configuration.Layers) > 0:
		return "has layers", nil
	case ok:
		a, err := d.functions.GetAlias(ctx, &lambda.GetAliasInput{FunctionName: &function, Name: &alias})
		if err != nil || a.RoutingConfig == nil {
			return "", err
		}
		for version := range a.RoutingConfig.AdditionalVersionWeights { // one at most
			return "also runs version " + version, nil
		}
	}
	return "", nil
}

// maxPackage is more than a package of Lambda can have
// (https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html).
const maxPackage = 300 << 20

// matches reports whether the package of a function has this program and no other files than
// those with CAs. The error does not have the URL, with which anyone can read the package.
func matches(ctx context.Context, f *lambda.GetFunctionOutput, program []byte) (bool, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, aws.ToString(f.Code.Location), nil)
	if err != nil {
		return false, errors.New("has no URL")
	}
	answer, err := http.DefaultClient.Do(r)
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return false, failed.Err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxPackage))
	if err != nil {
		return false, err
	}
	sum := sha256.Sum256(text)
	if digest := base64.StdEncoding.EncodeToString(sum[:]); digest != aws.ToString(f.Configuration.CodeSha256) {
		return false, fmt.Errorf("answered %d, and not with the digest CodeSha256", answer.StatusCode)
	}
	files, err := zip.NewReader(bytes.NewReader(text), int64(len(text)))
	if err != nil {
		return false, err
	}
	same, programs := false, 0
	for _, file := range files.File {
		switch file.Name {
		case "bootstrap":
			content, err := file.Open()
			if err != nil {
				return false, err
			}
			deployed, err := io.ReadAll(io.LimitReader(content, maxPackage))
			if err != nil {
				return false, err
			}
			same = bytes.Equal(deployed, program)
			programs++ // a zip file can have several of a name
		case settings.TruststoreFile, settings.ServiceCAFile:
		default:
			return false, nil
		}
	}
	return same && programs == 1, nil
}
