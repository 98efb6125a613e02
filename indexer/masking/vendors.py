"""Tokens that say themselves whose they are: how each vendor's begin, and what follows.

Written from what the vendors say of their own formats. A row is a kind, the beginnings, and the least number of
letters, digits, ``_``, ``-`` and `also` behind them; or as a pattern what follows exactly, where the beginning alone
says little.
"""

from __future__ import annotations

from typing import NamedTuple


class Vendor(NamedTuple):
    """One kind of token."""

    kind: str
    beginnings: str
    follows: int | str
    also: str = ""


_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_HEX_32, _HEX_40 = r"[0-9a-f]{32}", r"[0-9a-f]{40}"
#: Lines of base64, with real or escaped line ends.
_BASE64_LINES = (
    r"[A-Za-z0-9+/]{24,}+={0,2}(?:(?:\\[nr]|\s){1,4}+[A-Za-z0-9+/]{40,}+)*+"
    r"(?:(?:\\[nr]|\s){1,4}+[A-Za-z0-9+/]{1,69}={1,2})?"
)

VENDORS = (
    # where code lives, is built and is published
    Vendor("atlassian-token", "ATATT3 ATCTT3 ATSTT3 ATBB ATTA BBDC-", 24, "="),
    Vendor("buildkite-token", "bkua_ bkaj_ bkpat_", 30),
    Vendor("circleci-token", "CCIPAT_ CCIPRJ_", 30),
    Vendor("clojars-token", "CLOJARS_", 40),
    Vendor("crates-token", "cio", r"[A-Za-z0-9]{32}"),
    Vendor("clickup-token", "pk_", r"\d{6,10}_[A-Z0-9]{32}"),
    Vendor("docker-token", "dckr_pat_ dckr_oat_", 20),
    Vendor("drone-token", "drn_", 30),
    Vendor("github-token", "github_pat_ ghp_ gho_ ghu_ ghs_ ghr_", 36),
    Vendor(
        "gitlab-token",
        "glpat- gldt- glft- glsoat- glrt- glrtr- glimt- glptt- glagent- gloas- glcbt- glffct- glwt-",
        20,
        ".",
    ),
    Vendor("harness-token", "pat. sat.", r"[A-Za-z0-9_-]{22}\.[0-9a-f]{24}\.[A-Za-z0-9]{20}"),
    Vendor("hex-token", "hexpm_", 30),
    Vendor("artifactory-token", "cmVmdGtu AKCp AKC", 40),
    Vendor("npm-token", "npm_", 36),
    Vendor("nuget-key", "oy2", r"[a-z0-9]{43}"),
    Vendor("octopus-key", "API-", r"[A-Z0-9]{25,32}"),
    Vendor("packagist-token", "packagist_ack_ packagist_uut_ packagist_org_", 30),
    Vendor("pypi-token", "pypi-Ag", 40),
    Vendor("rubygems-key", "rubygems_", 40),
    Vendor("sonar-token", "squ_ sqp_ sqa_ sqb_", 40),
    Vendor("sourcegraph-token", "sgp_ sgd_ slk_ sgs_", 40),
    # where programs run
    Vendor("aws-access-key", "AKIA ASIA ABIA ACCA", r"[A-Z0-9]{16}"),
    Vendor("amazon-key", "amzn.mws.", _UUID),
    Vendor("dynatrace-token", "dt0c01. dt0s01. dt0s16.", r"[A-Z0-9]{24}\.[A-Z0-9]{60,}"),
    Vendor("private-key", "LS0tLS1CRUdJTi", r"(?!BDRVJU|BQVUJM)[A-Za-z0-9+/]{40,}={0,2}"),
    Vendor(  # what stands between the two lines of a block
        "private-key",
        "b3BlbnNzaC1rZXktdjE MIIEogIBAAK MIIEowIBAAK MIIEpAIBAAK MIIEpQIBAAK MIIJJwIBAAK MIIJKAIBAAK MIIJKQIBAAK "
        "MIIJKgIBAAK MIIEuwIBADAN MIIEvAIBADAN MIIEvQIBADAN MIIEvgIBADAN MIIJQQIBADAN MIIJQgIBADAN MIIJQwIBADAN "
        "MIIJRAIBADAN MHcCAQEEI MIGHAgEAMBMG MIGkAgEBBD MIG2AgEAMBAG",
        _BASE64_LINES,
    ),
    Vendor("age-key", "AGE-SECRET-KEY-1 AGE-SECRET-KEY-PQ-1", 40),
    Vendor("backblaze-key", "K001 K002 K003 K004 K005", r"[A-Za-z0-9/+]{27}(?![A-Za-z0-9_-])"),
    Vendor("alibaba-key", "LTAI", 16),
    Vendor("aws-key", "ABSK", 60, "+/="),
    Vendor("cloudflare-token", "cfut_ cfat_ cfk_", 24),
    Vendor("cloudflare-token", "eyJhIjoi eyJhIjog", 100),
    Vendor("private-key", "RWQAAEIy RWRTY0Iy", 60, "+/="),
    Vendor("cloudflare-token", "v1.0-", r"[0-9a-f]{24}-[0-9a-f]{80,}"),
    Vendor("digitalocean-token", "dop_v1_ doo_v1_ dor_v1_", 30),
    Vendor("doppler-token", "dp.pt. dp.ct. dp.sa. dp.st. dp.scim. dp.audit.", 24, "."),
    Vendor("fly-token", "fo1_ fm1_ fm1a_ fm1r_ fm2_", 30, "+/=,"),
    Vendor("google-key", "AIza GOCSPX- ya29. 1//0", 20, "."),
    Vendor("google-key", "AQ.", 40),
    Vendor("heroku-key", "HRKU-", 30),
    Vendor("infisical-token", "st.", r"[0-9a-f-]{24,36}\.[0-9a-f]{32}\.[0-9a-f]{32}"),
    Vendor("linode-token", "lin_pat_", 40),
    Vendor("netlify-token", "nfp_ nfc_ nfo_ nfu_ nfb_", 30),
    Vendor("onepassword-token", "ops_eyJ", 60, "="),
    Vendor("onepassword-key", "A3-", r"[A-Z0-9]{6}-(?:[A-Z0-9]{6}-[A-Z0-9]{5}|[A-Z0-9]{11})(?:-[A-Z0-9]{5}){3}"),
    Vendor("openshift-token", "sha256~", 40),
    Vendor("prefect-key", "pnu_ pnb_", 30),
    Vendor("pulumi-token", "pul-", _HEX_40),
    Vendor("render-key", "rnd_", 26),
    Vendor("scalingo-token", "tk-us-", 40),
    Vendor("tailscale-key", "tskey-", 20),
    Vendor("tencent-key", "AKID", 30),
    Vendor("vault-token", "hvs. hvb. hvr.", 24),
    Vendor("vercel-token", "vcp_ vci_ vca_ vcr_ vck_", 24),
    Vendor("yandex-key", "AQVN y0_ t1.9eu", 30, "."),
    # where data is
    Vendor("airtable-token", "pat", r"[A-Za-z0-9]{14}\.[0-9a-f]{64}"),
    Vendor("appwrite-key", "standard_", r"[0-9a-f]{100,}"),
    Vendor("axiom-token", "xaat- xapt-", 30),
    Vendor("clickhouse-key", "4b1d", r"[A-Za-z0-9]{38}"),
    Vendor("cockroach-key", "CCDB1_", 40),
    Vendor("contentful-token", "CFPAT-", 40),
    Vendor("convex-key", "prod:", r"[a-z]+-[a-z]+-\d+\|[A-Za-z0-9+/=]{40,}"),
    Vendor("databricks-token", "dapi dkea dose", rf"{_HEX_32}(?:-\d)?"),
    Vendor("dbt-token", "dbtc_ dbtu_", 30),
    Vendor("elastic-key", "essu_", 40, "="),
    Vendor("grafana-token", "glsa_ glc_", 30, "=+/"),
    Vendor("honeycomb-key", "hcaik_ hcxik_ hcalk_ hcamk_", 30),
    Vendor("materialize-password", "mzp_", 40),
    Vendor("mongodb-secret", "mdb_sa_sk_", 30),
    Vendor("neon-key", "napi_", 40),
    Vendor("newrelic-key", "NRAK- NRJS- NRII- NRRA- NRIQ- NRBR- NRSP-", 18),
    Vendor("pinecone-key", "pcsk_", 40),
    Vendor("planetscale-token", "pscale_tkn_ pscale_pw_ pscale_oauth_", 28, "."),
    Vendor("posthog-key", "phx_ phs_", 30),
    Vendor("sentry-token", "sntrys_ sntryu_ sntrya_ sntryi_", 40, "=+/"),
    Vendor("supabase-key", "sbp_ sb_secret_", 28),
    Vendor("tinybird-token", "p.eyJ", 40, "."),
    Vendor("xata-key", "xau_", 30),
    # models
    Vendor(
        "api-key", "sk-", r"(?!ant-)(?=[A-Za-z_-]{0,64}[0-9])(?=[a-z0-9_-]{0,64}[A-Z]|[0-9a-f]{32}|or-v1-)[\w-]{20,}"
    ),
    Vendor("anthropic-key", "sk-ant-", 16),
    Vendor("api-key", "sk-proj- sk-svcacct- sk-admin- sk-or-v1- sk-lf- sk-helicone-", 32),
    Vendor("api-key", "nvapi- pplx- xai- gsk_ csk- fw_ tgp_v1_ jina_ tvly- e2b_ bb_live_ rpa_ cal_live_", 20),
    Vendor("api-key", "pa- BSA", r"[A-Za-z0-9_-]{27,}"),
    Vendor("api-key", "fc-", _HEX_32),
    Vendor("api-key", "sess-", 40),
    Vendor("elevenlabs-key", "sk_", r"[0-9a-f]{48}"),
    Vendor("huggingface-token", "hf_ api_org_", 30),
    Vendor("langsmith-key", "lsv2_pt_ lsv2_sk_ ls__", 30),
    Vendor("replicate-token", "r8_", 36),
    Vendor("wandb-key", "wandb_v1_", 30),
    # money and shops
    Vendor("adyen-key", "AQE", 80, "+/=.{"),
    Vendor("braintree-token", "access_token$production$ access_token$sandbox$", 32, "$"),
    Vendor("duffel-token", "duffel_live_ duffel_test_", 40),
    Vendor("easypost-key", "EZAK EZTK", 50),
    Vendor("flutterwave-key", "FLWSECK- FLWSECK_TEST-", 24),
    Vendor("paddle-key", "pdl_live_apikey_ pdl_sdbx_apikey_", 30),
    Vendor("plaid-token", "access-production- access-development- access-sandbox-", 32),
    Vendor("polar-token", "polar_oat_ polar_pat_ polar_at_", 30),
    Vendor("razorpay-key", "rzp_live_ rzp_test_", 14),
    Vendor("mercadopago-token", "APP_USR- TEST-", r"\d{10,20}-\d{6}-[0-9a-f]{32}(?:-\d{4,12})?"),
    Vendor("shippo-token", "shippo_live_ shippo_test_", 36),
    Vendor("shopify-token", "shpat_ shpss_ shpca_ shppa_ shptka_ shpua_", 30),
    Vendor("square-secret", "sq0atp- sq0csp- EAAA", 22),
    Vendor("stripe-key", "sk_live_ rk_live_ sk_test_ rk_test_ whsec_", 24, "+/="),
    # people, mail and work
    Vendor("twilio-key", "AC SK", r"[0-9a-f]{32}(?::[0-9a-f]{32})?(?![A-Za-z0-9_-])"),
    Vendor("jwt", "eyJ", r"[A-Za-z0-9_-]{8,}\.\.?[A-Za-z0-9_-]{8,}+(?:\.[A-Za-z0-9_-]*+)*+"),
    Vendor("adafruit-key", "aio_", 26),
    Vendor("adobe-secret", "p8e-", 30),
    Vendor("asana-token", "0/ 1/ 2/", rf"\d{{10,}}(?:/\d{{10,}})?:{_HEX_32}"),
    Vendor("asana-token", "0/", _HEX_32),
    Vendor("brevo-key", "xkeysib- xsmtpsib-", 60),
    Vendor("dropbox-token", "sl. sl.u.", 60, "."),
    Vendor("facebook-token", "EAAC EAAB EAAG EAAJ EAAL EAAN EAAO", 80),
    Vendor("facebook-token", "IGQV IGAA", 80),
    Vendor("firebase-token", "APA91b", 80),
    Vendor("figma-token", "figd_ figu_ figo_", 30),
    Vendor("frameio-token", "fio-u-", 50),
    Vendor("hubspot-token", "pat-na1- pat-na2- pat-eu1- pat-ap1-", 30),
    Vendor("intercom-token", "dG9rO", 40, "="),
    Vendor("launchdarkly-key", "sdk- api- mob-", _UUID),
    Vendor("linear-key", "lin_api_ lin_oauth_ lin_wh_", 30),
    Vendor("mailgun-key", "key- pubkey-", rf"{_HEX_32}(?![0-9a-f])"),
    Vendor("mandrill-key", "md-", r"[A-Za-z0-9_-]{22}"),
    Vendor("mapbox-token", "sk.eyJ tk.eyJ", 40, "."),
    Vendor("notion-token", "ntn_", 40),
    Vendor("notion-token", "secret_", r"[A-Za-z0-9]{43}"),
    Vendor("onesignal-key", "os_v2_app_ os_v2_org_", 40),
    Vendor("postman-key", "PMAK- PMAT-", 24),
    Vendor("readme-key", "rdme_", 40),
    Vendor("resend-key", "re_", r"[A-Za-z0-9]{8}_[A-Za-z0-9]{16,}"),
    Vendor("sendgrid-key", "SG.", 50, "."),
    Vendor("slack-token", "xapp- xoxe- xoxe. xoxc- xoxd- xoxb- xoxp- xoxa- xoxs- xoxr-", 20, ".%"),
    Vendor("trello-token", "ATTA", 60),
    Vendor("twitch-token", "oauth:", r"[a-z0-9]{30}(?![A-Za-z0-9_-])"),
    Vendor("twitter-token", "AAAAAAAAAAAAAAAAAAAAA", 40, "%"),
    Vendor("typeform-token", "tfp_", 40),
    Vendor("wakatime-key", "waka_", _UUID),
    Vendor("zapier-token", "zpka_", 30),
    Vendor("zoho-token", "1000.", rf"{_HEX_32}\.{_HEX_32}"),
    Vendor(
        "authress-key",
        "sc_ ext_ scauth_ authress_",
        r"[a-z0-9]{5,30}\.[a-z0-9]{4,6}\.acc[_-][a-z0-9-]{10,32}\.[A-Za-z0-9+/_=-]{30,120}",
    ),
    Vendor("bedrock-key", "bedrock-api-key-", 60, "="),
    Vendor("gitlab-token", "GR1348941", 20),
    Vendor("inngest-key", "signkey-prod- signkey-test- signkey-branch-", 32),
    Vendor("intra42-secret", "s-s4t2ud- s-s4t2af-", 40),
    Vendor("infracost-key", "ico-", r"[A-Za-z0-9]{32}"),
    Vendor("defined-token", "dnkey-", 40),
    Vendor("logfire-token", "pylf_v1_", 30),
    Vendor("matrix-token", "syt_", 30),
    Vendor("settlemint-token", "sm_aat_ sm_pat_ sm_sat_", 16),
    Vendor("socket-key", "sktsec_", 30),
    Vendor("trigger-key", "tr_dev_ tr_prod_ tr_stg_", 16),
    Vendor("vercel-token", "vercel_blob_rw_", 30),
    Vendor("xendit-key", "xnd_production_ xnd_development_", 30),
    Vendor("salesforce-session", "00D", r"[A-Za-z0-9]{12,15}![A-Za-z0-9._-]{80,}"),
    Vendor("amazon-token", "amzn1.oa2-cs.v1. Atza| Atzr|", 40, "/+="),
    Vendor("google-key", "4/0A", 40),
    Vendor("mailersend-key", "mlsn.", 40),
    Vendor("ntfy-token", "tk_", r"[a-z0-9]{29}(?![A-Za-z0-9_-])"),
    Vendor("paseto", "v1.local. v2.local. v3.local. v4.local.", 40, "."),
    Vendor("rancher-token", "token-", r"[a-z0-9]{5}:[a-z0-9]{54}"),
    Vendor("roblox-cookie", "_|WARNING:-DO-NOT-SHARE-THIS.--", r"[^|\s]{20,200}\|_[A-F0-9]{100,}+"),
    Vendor("spaces-key", "DO00", r"[A-Z0-9]{16}(?![A-Za-z0-9_-])"),
    Vendor("telnyx-key", "KEY0", r"[0-9A-F]{29,31}_[A-Za-z0-9]{22}"),
    Vendor("vault-token", "s.", r"[A-Za-z0-9]{24}(?![A-Za-z0-9_-])"),
    # coins
    Vendor("nostr-key", "nsec1", 50),
    Vendor("wallet-key", "xprv yprv zprv", 100),
)
