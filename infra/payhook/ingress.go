package payhook

import (
	"encoding/json"
	"slices"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscertificatemanager"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsroute53"
	"github.com/aws/aws-cdk-go/awscdk/v2/awss3assets"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/shared/settings"
)

// ingress is where webhooks arrive: a function URL, or an HTTP API of API Gateway if there is a domain name.
type ingress struct {
	// These are nil for a function URL.
	scope       constructs.Construct
	api, domain awscdk.CfnResource
	// certificate is the ARN of the domain name's certificate.
	certificate *string

	url *string // set by connect
}

const (
	defaultStage = "$default" // its name is not part of the URL
	routePath    = "/"        // of the only route
	// apiTimeout is how long the API waits for the function, in milliseconds: the longest time that it can (AWS,
	// "Quotas for configuring and running an HTTP API in API Gateway"). The timeout of the function is not longer.
	apiTimeout = 30_000
)

// throttleRate is how many requests a second the API forwards on average, and throttleBurst how many at once. A flood
// must not use up the quotas that all APIs and functions of the account share: 10,000 requests a second, or less in
// some Regions, and 1,000 concurrent runs (AWS, "Throttle requests to your HTTP APIs" in the API Gateway Developer
// Guide, and "Lambda quotas"). To raise it at once: aws apigatewayv2 update-stage --default-route-settings.
const (
	throttleRate  = 100
	throttleBurst = 2 * throttleRate
)

// newIngress creates the API and its domain name, before the function, whose environment has the id of the API.
func newIngress(p *Payhook, ownership awscertificatemanager.ICertificate) *ingress {
	conf := p.conf
	if conf.DomainName == "" {
		return &ingress{}
	}
	scope := constructs.NewConstruct(p, jsii.String("Ingress"))
	api := newAPIResource(scope, "Api", "Api", map[string]any{
		"Name":         cut(conf.StackName(), 128), // AWS, "CreateApi" in the API reference of HTTP APIs
		"Description":  "Payhook: " + conf.StackName() + ", receives webhooks",
		"ProtocolType": "HTTP",
		// Clients could call the API at this endpoint without a certificate (AWS, "How to
		// turn on mutual TLS authentication for your HTTP APIs in API Gateway").
		"DisableExecuteApiEndpoint": true,
		"IpAddressType":             "dualstack",
	})

	certificate := jsii.String(conf.CertificateARN)
	if conf.CertificateARN == "" {
		// CloudFormation creates the validation record in the zone (AWS, "AWS::CertificateManager::Certificate
		// DomainValidationOption" in the CloudFormation Template Reference).
		certificate = awscertificatemanager.NewCfnCertificate(scope, jsii.String("Certificate"),
			&awscertificatemanager.CfnCertificateProps{
				DomainName:       jsii.String(conf.DomainName),
				ValidationMethod: jsii.String("DNS"),
				DomainValidationOptions: &[]any{&awscertificatemanager.CfnCertificate_DomainValidationOptionProperty{
					DomainName: jsii.String(conf.DomainName), HostedZoneId: jsii.String(conf.HostedZoneID),
				}},
			}).Ref()
	}
	configuration := map[string]any{
		"CertificateArn": certificate,
		"EndpointType":   "REGIONAL",
		"SecurityPolicy": "TLS_1_2",
		"IpAddressType":  "dualstack",
	}
	properties := map[string]any{
		"DomainName":               conf.DomainName,
		"DomainNameConfigurations": []any{configuration},
	}
	if conf.UsesMTLS() {
		if ownership != nil {
			configuration["OwnershipVerificationCertificateArn"] = ownership.CertificateArn()
		}
		properties["MutualTlsAuthentication"] = map[string]any{"TruststoreUri": p.truststoreURI(scope)}
	}
	return &ingress{scope: scope, api: api, certificate: certificate,
		domain: newAPIResource(scope, "Domain", "DomainName", properties)}
}

// newAPIResource creates a resource of API Gateway, whose own package, awsapigatewayv2, brings 30 packages to compile.
// The synthesis checks the properties, as the flag @aws-cdk/core:validateAgainstDefaultRules in cdk.json says.
func newAPIResource(scope constructs.Construct, id, kind string, properties map[string]any) awscdk.CfnResource {
	return awscdk.NewCfnResource(scope, jsii.String(id), &awscdk.CfnResourceProps{
		Type: jsii.String("AWS::ApiGatewayV2::" + kind), Properties: &properties,
	})
}

// truststoreURI adds the truststore as an asset and returns its S3 URI. It is the text in the packages of the
// functions, with the certificates alone. The CDK names an asset by its content, so a new truststore is a new object:
// API Gateway does not read an object again when its content changes (AWS, "Updating your truststore" in the API
// Gateway Developer Guide).
func (p *Payhook) truststoreURI(scope constructs.Construct) *string {
	return awss3assets.NewAsset(scope, jsii.String("Truststore"), &awss3assets.AssetProps{
		Path: jsii.String(p.packages[settings.TruststoreFile]),
	}).S3ObjectUrl()
}

// connect makes the ingress invoke the alias of the function.
func (e *ingress) connect(p *Payhook, f function) {
	conf := p.conf
	if e.api == nil {
		url := f.alias.AddFunctionUrl(&awslambda.FunctionUrlOptions{AuthType: awslambda.FunctionUrlAuthType_NONE})
		explain(url, "CKV_AWS_258")
		e.url = url.Url()
		return
	}
	e.url = jsii.String("https://" + conf.DomainName + routePath)

	// A deployment that enables mTLS must update the domain name first. A function that
	// requires certificates before API Gateway requests them rejects everything.
	f.alias.Node().AddDependency(e.domain)

	integration := newAPIResource(e.scope, "Integration", "Integration", map[string]any{
		"ApiId":                e.api.Ref(),
		"IntegrationType":      "AWS_PROXY",
		"IntegrationUri":       f.alias.FunctionArn(),
		"PayloadFormatVersion": "2.0",
		"TimeoutInMillis":      apiTimeout,
	})
	for _, method := range slices.Concat(settings.Methods(), settings.MonitorMethods()) {
		newAPIResource(e.scope, "Route"+method, "Route", map[string]any{
			"ApiId":             e.api.Ref(),
			"RouteKey":          method + " " + routePath,
			"AuthorizationType": "NONE", // as for the function URL
			"Target":            "integrations/" + *integration.Ref(),
		})
		f.alias.AddPermission(jsii.String("Api"+method), &awslambda.Permission{
			Principal: awsiam.NewServicePrincipal(jsii.String("apigateway.amazonaws.com"), nil),
			Action:    jsii.String("lambda:InvokeFunction"),
			SourceArn: p.arn("execute-api", *e.api.Ref()+"/"+defaultStage+"/"+method+routePath),
		})
	}
	stage := e.newStage(p)
	newAPIResource(e.scope, "Mapping", "ApiMapping", map[string]any{
		"ApiId": e.api.Ref(), "DomainName": e.domain.Ref(), "Stage": stage.Ref(),
	})
	e.publishName(p)
}

// accessLog returns the fields of the access log, with variables of API Gateway (AWS, "Customize HTTP API access logs"
// in the API Gateway Developer Guide). They contain no data of the request except its sender, and only the
// identification of a client certificate.
func accessLog(conf settings.Settings) map[string]string {
	log := map[string]string{
		"time":              "$context.requestTime",
		"requestId":         "$context.requestId",
		"apiId":             "$context.apiId",
		"routeKey":          "$context.routeKey",
		"sourceIp":          "$context.identity.sourceIp",
		"status":            "$context.status",
		"error":             "$context.error.responseType",
		"latency":           "$context.responseLatency",
		"functionRequestId": "$context.integration.requestId",
		"functionStatus":    "$context.integration.status",
		// The status of Lambda's answer, not of the function's.
		"lambdaStatus": "$context.integration.integrationStatus",
		// The dimension of the metrics that are made from the lines.
		"stackName": conf.StackName(),
	}
	if conf.UsesMTLS() {
		log["certificateSerialNumber"] = "$context.identity.clientCert.serialNumber"
		log["certificateNotAfter"] = "$context.identity.clientCert.validity.notAfter"
	}
	return log
}

// notInvoked is the pattern of the metric filter for requests that API Gateway answered without a run of the function.
// A run has the Lambda status 200 even if it fails. The service does not send requests for other routes (404). Requests
// without a valid certificate (403) also come from other senders.
const notInvoked = `{ $.lambdaStatus != "200" && $.status != "404" && $.status != "403" }`

// forbidden is the pattern of the metric filter for requests that API Gateway rejects because of their client
// certificate. Those that the function answers 403, because of allowedNetworks, have the Lambda status 200.
const forbidden = `{ $.lambdaStatus != "200" && $.status = "403" }`

// newStage creates the stage with its access log, and the metrics of the requests that do not reach the function.
func (e *ingress) newStage(p *Payhook) awscdk.CfnResource {
	conf, logs := p.conf, p.newLogGroup(e.scope, "AccessLog")
	format, err := json.Marshal(accessLog(conf))
	if err != nil {
		panic(err) // a map of strings always has a JSON form
	}
	e.count(logs, settings.NotInvokedMetric, notInvoked)
	if conf.UsesMTLS() {
		e.count(logs, settings.ClientErrorsMetric, forbidden)
	}
	return newAPIResource(e.scope, "Stage", "Stage", map[string]any{
		"ApiId":      e.api.Ref(),
		"StageName":  defaultStage,
		"AutoDeploy": true,
		"AccessLogSettings": map[string]any{
			"DestinationArn": logs.LogGroupArn(),
			"Format":         string(format),
		},
		"DefaultRouteSettings": map[string]any{
			"ThrottlingRateLimit":  throttleRate,
			"ThrottlingBurstLimit": throttleBurst,
		},
	})
}

// count adds the number of lines of the access log that match a pattern to a metric, without a unit, as the functions
// do: an alarm on a metric with two units is unpredictable
// (https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_PutMetricAlarm.html).
func (e *ingress) count(logs awslogs.LogGroup, m settings.Metric, pattern string) {
	awslogs.NewMetricFilter(e.scope, jsii.String(m.Name), &awslogs.MetricFilterProps{
		LogGroup: logs, FilterPattern: awslogs.FilterPattern_Literal(&pattern),
		MetricNamespace: jsii.String(settings.MetricNamespace), MetricName: &m.Name, MetricValue: jsii.String("1"),
		Dimensions: &map[string]*string{settings.MetricDimension: jsii.String("$.stackName")},
	})
}

// publishName creates the DNS records, or an output with the value of the record to create.
func (e *ingress) publishName(p *Payhook) {
	conf := p.conf
	if conf.HostedZoneID == "" {
		p.output("DomainTarget", "the value of the CNAME record to create for domainName",
			e.ofDomain("RegionalDomainName"))
		return
	}
	for _, kind := range []string{"A", "AAAA"} {
		awsroute53.NewCfnRecordSet(e.scope, jsii.String("Record"+kind), &awsroute53.CfnRecordSetProps{
			HostedZoneId: jsii.String(conf.HostedZoneID),
			Name:         jsii.String(conf.DomainName + "."),
			Type:         jsii.String(kind),
			AliasTarget: &awsroute53.CfnRecordSet_AliasTargetProperty{
				DnsName:      e.ofDomain("RegionalDomainName"),
				HostedZoneId: e.ofDomain("RegionalHostedZoneId"),
			},
		})
	}
}

func (e *ingress) ofDomain(attribute string) *string {
	return e.domain.GetAtt(jsii.String(attribute), awscdk.ResolutionTypeHint_STRING).ToString()
}
