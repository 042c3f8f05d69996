// Checks CloudFormation templates with the AwsSolutions pack of cdk-nag, and with cdk-preflight, whose rules are
// what AWS refuses in a deployment although the template is valid. Arguments are the files of templates in JSON. It
// prints a JSON array of the findings: the logical id of the resource and the rule, separated by a space.
"use strict";
const fs = require("fs");
const os = require("os");
const path = require("path");
const { App, Stack, Validations } = require("aws-cdk-lib");
const { CfnInclude } = require("aws-cdk-lib/cloudformation-include");
const { AwsSolutionsChecks } = require("cdk-nag");
const { Preflight } = require("cdk-preflight");

const folder = fs.mkdtempSync(path.join(os.tmpdir(), "audit-"));
const findings = [];
for (const file of process.argv.slice(2)) {
  // The stack around the template has these already.
  const { Parameters, Rules, ...template } = JSON.parse(fs.readFileSync(file));
  const included = path.join(folder, path.basename(file));
  const outdir = included + ".out";
  fs.writeFileSync(included, JSON.stringify(template));
  const app = new App({ outdir });
  // The Region is that of the keys in the templates.
  const stack = new Stack(app, "Stack", { env: { region: "eu-central-1" } });
  new CfnInclude(stack, "Template", { templateFile: included });
  Validations.of(app).addPlugins(new AwsSolutionsChecks(app));
  Preflight.apply(app, { strict: true }); // errors of the CDK's own validation count as well
  try {
    app.synth();
  } catch (error) {
    if (!String(error.message).startsWith("Validation failed")) throw error;
  }
  const report = fs.readFileSync(path.join(outdir, "validation-report.json"));
  for (const { metadata, violations } of JSON.parse(report).pluginReports) {
    if (metadata?.error) throw new Error(metadata.error);
    for (const { ruleName, description, violatingConstructs } of violations) {
      // The report has a rule of cdk-nag that failed as a finding of that rule.
      const rule = description.startsWith("Rule threw an error") ? ruleName + " (error)" : ruleName;
      findings.push(...violatingConstructs.map((found) => path.basename(found.constructPath) + " " + rule));
    }
  }
}
fs.rmSync(folder, { recursive: true });
process.stdout.write(JSON.stringify(findings));
