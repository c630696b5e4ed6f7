"""Where the privacy corpus plants its values, and the look-alikes that must stay.

Owns wordings, in pairs: those that may be read while rules are improved, and those held out for measuring. `<value>`, `<field>`,
`<FIELD>` and `<noun>` are filled in around a planted value; `<hex40>`, `<int10>` and so on in a look-alike.
"""

from dataclasses import dataclass
from enum import StrEnum


class Form(StrEnum):
    """How a value is written where it stands."""

    RAW = "raw"
    JSON = "json"
    NESTED_JSON = "nested json"
    """JSON inside a JSON string."""
    URL = "url"


class Place(StrEnum):
    CONTENT = "content"
    ARGUMENTS = "arguments"


@dataclass(frozen=True, slots=True)
class Wording:
    text: str
    form: Form = Form.RAW
    place: Place = Place.CONTENT
    has_lines: bool = True
    """Whether a value of several lines can stand here."""


NAMED: tuple[tuple[Wording, ...], tuple[Wording, ...]] = (
    (
        Wording("Hi, my <noun> is <value> and it stopped working this morning, can you help?"),
        Wording("Customer details\n- <noun>: <value>\n- plan: gold\n"),
        Wording('{"<field>": "<value>", "retries": 3}', Form.JSON, Place.ARGUMENTS),
        Wording(r'{"body": "{\"user\": {\"<field>\": \"<value>\"}, \"page\": 2}"}', Form.NESTED_JSON, Place.ARGUMENTS),
        Wording('{"status": 200, "data": {"<field>": "<value>", "items": []}}', Form.JSON),
        Wording("$ export <FIELD>='<value>'\n$ ./deploy.sh --fast\nok\n"),
        Wording(
            'Traceback (most recent call last):\n  File "/app/main.py", line 12, in run\n    send(<field>="<value>", n=3)\nValueError: bad\n'
        ),
        Wording("service:\n  <field>: <value>\n  retries: 3\n", has_lines=False),
        Wording("<FIELD>=<value>\nDEBUG=1\n", has_lines=False),
        Wording("2026-03-04T10:11:12Z INFO checkout <field>=<value> status=200 took=31ms", has_lines=False),
        Wording("GET https://api.north.internal/v1/find?<field>=<value>&page=2 HTTP/1.1", Form.URL, has_lines=False),
    ),
    (
        Wording("ok so i tried it again with the <noun> you asked for: <value>. same error :("),
        Wording("Please update the account. The <noun> should be <value>, everything else stays."),
        Wording('{"profile":{"name":"Jo","<field>":"<value>"},"dry_run":false}', Form.JSON, Place.ARGUMENTS),
        Wording(r'{"command": "cat > conf.json <<EOF\n{\"<field>\": \"<value>\"}\nEOF"}', Form.NESTED_JSON, Place.ARGUMENTS),
        Wording('[{"id": 17, "<field>": "<value>"}, {"id": 18}]', Form.JSON),
        Wording("+ <FIELD>=<value> node server.js\nlistening on 3000\n", has_lines=False),
        Wording("E   KeyError: 'x'\nE   context: {'<field>': '<value>', 'n': 1}\ntests/test_api.py:88: KeyError\n"),
        Wording('env:\n  - name: <FIELD>\n    value: "<value>"\n  - name: LOG_LEVEL\n    value: info\n', has_lines=False),
        Wording("[worker-3] 14:02:55.120 WARN retry 2/5 <field>: <value>; next in 4s", has_lines=False),
        Wording("curl 'https://api.north.internal/search?limit=5&<field>=<value>'", Form.URL, has_lines=False),
        Wording("| name | <noun> |\n| --- | --- |\n| Jo | <value> |\n", has_lines=False),
    ),
)
BARE: tuple[tuple[Wording, ...], tuple[Wording, ...]] = (
    (
        Wording("Here you go: <value>"),
        Wording('{"text": "first line\\n<value>\\nlast line"}', Form.JSON, Place.ARGUMENTS),
        Wording("name,value,checked\njo,<value>,yes\n", has_lines=False),
        Wording('{"message": "{\\"line\\": \\"a\\\\tb\\\\n<value>\\"}"}', Form.NESTED_JSON),
    ),
    (
        Wording("Use this one (<value>), not the old one."),
        Wording('{"lines": ["start", "see <value>", "end"]}', Form.JSON, Place.ARGUMENTS),
        Wording("jo\t<value>\t2026-01-05\n", has_lines=False),
        Wording('{"stdout": "[info]\\u003c<value>\\u003e\\r\\n"}', Form.JSON),
    ),
)


LOOK_ALIKES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "token counts": (
        (
            "max_output_tokens=<int4>, total_tokens: <int6>, cached_tokens=<int5>",
            '{"max_tokens": <int4>, "token_count": <int10>}',
        ),
        (
            "Used <int9> tokens (limit <int10>), tokens_per_second=<int3>.<int2>",
            '{"usage": {"completion_tokens": <int8>}, "token_limit": 128000}',
        ),
    ),
    "code that names secrets": (
        (
            'api_key = os.environ["OPENAI_API_KEY_<int1>"]',
            "password: str | None = None  # user<int3>'s password",
            "token = self.tokenizer.encode_batch_<int2>(text)[0]",
            "const secret = process.env.CLIENT_SECRET_V2;",
            'headers = {"Authorization": f"Bearer {settings.token_v<int1>}"}',
            "client = Client(api_key=config.providers[<int1>].api_key, password=get_password_v2(user))",
        ),
        (
            "secret_key: Annotated[SecretStr, Field(min_length=<int2>)]",
            "if password != confirm_password2: raise ValueError('password mismatch <int2>')",
            "val apiKey = BuildConfig.MAPS_API_KEY_V2",
            "token=$(kubectl get secret app-v<int1> -o jsonpath='{.data.token}')",
            "auth_token = request.headers.get('X-Auth-Token-<int1>')",
        ),
    ),
    "identifiers": (
        (
            "class <camel>Http2ConnectionPoolFactoryImpl<int1>(<camel>Base):",
            "from <word>.<word>_v2 import <camel>V3Adapter, test_<word>_<int3>_roundtrip",
        ),
        (
            "error: undefined reference to `_ZN4<word><int2><camel>C1Ev'",
            "com.<word>.<camel>$$EnhancerBySpringCGLIB$$<hex8>.run(<camel>.java:<int3>)",
        ),
    ),
    "paths": (
        (
            "/usr/lib/python3.11/site-packages/<word>/<word>_<int2>.py:<int3>: in test_x2",
            r"C:\\Users\\ci\\<word>\\new<int2>\\token<int1>.txt",
        ),
        (
            "./node_modules/.pnpm/<word>@<ver>_<hex32>/node_modules/<word>/dist/index.mjs",
            "s3://<word>-logs/2026/03/04/part-<int5>-<uuid>.c000.snappy.parquet",
        ),
    ),
    "git output": (
        (
            "commit <hex40>\nMerge: <hex7> <hex7>\nDate:   Mon Mar 2 10:11:12 2026 +0100\n\n    Fix <word>\n",
            "<hex7> (HEAD -> main, tag: v<ver>) <word> <word>\nindex <hex10>..<hex10> 100644",
        ),
        (
            "@@ -<int3>,6 +<int3>,9 @@ class <camel>\n+<int11>\n-<int10>\n",
            "From <hex40> Mon Sep 17 00:00:00 2001\nSubject: [PATCH 1/2] <word>\n * [new branch] <hex12> -> origin/<word>",
        ),
    ),
    "UUIDs": (
        ('{"tool_id": "<uuid>", "parent": "<uuid>"}', "request <uuid> finished in <int3> ms"),
        ("X-Request-Id: <uuid>", "/api/v2/sessions/<uuid>/events?after=<uuid>"),
    ),
    "ids of API objects": (
        (
            '{"id": "call_<b24>", "type": "function"}',
            '{"id": "toolu_01<b22>", "model": "m"}',
            "chatcmpl-<b29> run_<b24> msg_01<b22>",
            "customer cus_<b14> paid pi_<b24>",
        ),
        (
            '{"response_id": "resp_<hex48>", "item": "fc_<hex48>"}',
            "thread_<b24> asst_<b24> file-<b22> req_<b24>",
            "price_1<b23> and evt_1<b23>",
        ),
    ),
    "version numbers": (
        (
            "version <int1>.<int2>.<int2>.<int3>",
            "Chrome/12<int1>.0.60<int2>.109 Safari/537.36",
            "pip install foo==1.2.3.<int1> bar>=10.20.30.<int2>",
        ),
        (
            "Assembly, Version=4.<int1>.0.0, Culture=neutral",
            "release 5.14.0-<int3>.el9.x86_64, openssl 3.0.<int1>-1ubuntu<int1>",
            "upgraded libfoo (1.2.3.<int1> -> v1.2.4.<int1>)",
        ),
    ),
    "order ids": (
        (
            "order <luhn16>, invoice <int10>, SKU AB<int6>X",
            '{"order_id": "<luhn16>", "ticket_id": <int10>}',
            "tracking number 1Z<up6><int10>",
            "Order #<int3>-<int7>-<int7> shipped",
        ),
        (
            "Your case number is <int10>.",
            '{"orderNumber": "<luhn16>", "productId": "<int12>"}',
            "item no. <int3>-<int3>-<int4>, ref <luhn16>",
            "parcel id: <int12>",
        ),
    ),
    "SKUs and part numbers": (
        ("SKU-<up4>-<int6>-<up1>, part number <int3>-<int2>-<int4>", "BX<int4>-<int3>-BLK size <int2>"),
        ("model WH-<int4>XM<int1>, serial no <up2><int8><up1>", "P/N <int5>-<int4>-<int2>"),
    ),
    "timestamps": (
        (
            "2026-11-30T21:00:24.<int3>Z 12:34:56 <epoch_ns> <epoch_ms>",
            "ts=<epoch_s>.<int6> date=2026<mm><dd> [<dd>/Mar/2026:10:11:12 +0000]",
        ),
        ('{"start_time_unix_nano": "<epoch_ns>", "t": <epoch_ms>}', "last modified 2026<mm><dd>T101112+0200, expires <epoch_s>"),
    ),
    "images in base64": (
        ("data:image/png;base64,iVBORw0KGgo<base300>=", '{"image": "/9j/4AAQSkZJRg<base300>"}'),
        (
            "background: url(data:image/gif;base64,R0lGODlh<base200>==)",
            '{"type": "image", "source": {"media_type": "image/jpeg", "data": "/9j/<base300>"}}',
        ),
    ),
    "hex digests": (
        ("sha256:<hex64>", "md5 <hex32>  dist/<word>.tar.gz", "Digest: sha1=<hex40>"),
        ("<hex64>  ./<word>.bin\n<hex64>  ./<word>.txt", 'ETag: "<hex32>"', "checksum = <hex64>"),
    ),
    "colours": (
        ("color: #<hex6>; background: #<hex8>", "--accent: #<hex6>; rgb(<int2>, <int2>, <int2>)"),
        ("fill='#<hex6>' stroke=\"#<hex3>\"", "0xFF<hex6> hsl(<int2> 50% 20%)"),
    ),
    "ISBNs": (("ISBN <isbn>", "isbn: 0-306-<int5>-2"), ("(ISBN-13 <isbn>)", "EAN <int13>")),
    "build numbers": (
        ("build 555-<int3>-<int4>", "Build #<int10> (2024.<int3>.<int4>)", "job <int11> on runner <int6>"),
        ("workflow run <int11> attempt 2", "firmware <int2>-<int4>-<int4>", "pid <int6> thread 1<int14>"),
    ),
    "addresses that are nobody's": (
        (
            "127.0.0.1:8000 0.0.0.0 10.0.0.<int1> 192.168.<int2>.<int1>",
            "docs: 203.0.113.<int2>, 198.51.100.<int2>, 192.0.2.<int1>, 2001:db8::<int2>",
            "::1 fe80::<int3> 172.17.0.<int1>/16",
        ),
        (
            "http://127.0.0.1:<int4>/health, 169.254.169.254",
            "listen [::]:<int4>; allow 10.<int2>.0.0/16",
            "255.255.255.0 netmask, 224.0.0.<int1>",
        ),
    ),
    "@ that is no e-mail": (
        (
            "git@github.com:acme/<word>.git",
            "npm i <word>@<ver> @types/<word>@<ver>-rc.beta",
            "<word>@2x.png icon-<int2>@3x.webp",
            "ssh://git@gitlab.com/acme/<word>",
        ),
        (
            "@app.route('/x') @pytest.fixture user@host",
            "getty@tty<int1>.service <word>@<int2>.socket",
            "uses: actions/checkout@v4 docker.io/<word>@sha256:<hex64>",
            "out = W<int1>@x.mean(0)",
        ),
    ),
    "placeholders": (
        (
            "OPENAI_API_KEY=sk-xxxxxxxxxxxxxxxxxxxxxxxx",
            "api_key: <YOUR_KEY>",
            "password: ${DB_PASSWORD_<int1>}",
            'token = "your-token-here"',
            '{"api_key": "<API_KEY>"}',
            "Authorization: Bearer $TOKEN_<int1>",
        ),
        (
            "export API_KEY=your_api_key_here_<int1>",
            "secret: '{{ vault_secret_<int1> }}'",
            "postgres://user:<password>@localhost/db",
            "STRIPE_KEY=sk_test_...",
            '{"password": "********"}',
        ),
    ),
    "package hashes": (
        ('"integrity": "sha512-<base86>=="', "<word>==<ver> --hash=sha256:<hex64>", "h1:<base43>= go.sum"),
        (
            "resolution: {integrity: sha512-<base86>==}",
            'checksum = "<hex64>"  # Cargo.lock',
            "<word>@npm:<ver> checksum: 10c0/<hex64>",
        ),
    ),
    "docker digests": (
        ("FROM python@sha256:<hex64>", "<hex12>: Pull complete\nDigest: sha256:<hex64>", "CONTAINER ID <hex12>  <word>:<ver>"),
        ("overlay2/<hex64>/merged", "Successfully built <hex12>\nSuccessfully tagged <word>:<ver>"),
    ),
    "amounts and measures": (
        (
            "total $1,<int3>.<int2>, refund <int3>.<int2> EUR, 1.<int3>.<int3>,00",
            "lat 52.<int6> lon 13.<int7>, <int10> bytes, ratio 0.<int12>",
        ),
        (
            "Population: 1 <int3> <int3> <int3>",
            "p50=<int2>ms p99=<int4>ms rss=<int10> hits=<int8>/<int9>",
            "0x<hex16> 00000010 00000020 00 1f 8b 08",
        ),
    ),
    "cursors": (
        ('{"cursor": "<b24>", "etag": "<b24>"}', "GET /items?after=<b32>&page=2"),
        ('If-None-Match: "<b24>"', '{"page_info": {"end_cursor": "<b32>"}}'),
    ),
    "number words": (
        ("call foo(<int10>) then bar(<int9>, <int9>)", "Port <int5>, cell B<int2>, row <int10>, zip 9<int4>-<int4>"),
        ("mobile breakpoint 768px, tel. ext <int4>, phone model SM-<int4>", "contact sheet <int3>: frames 1<int4>-1<int4>"),
    ),
}
