//! RES03, RES05: values of published libraries. They are installed once per Python, with `uv`.

use std::{path::PathBuf, process::Command};

use ramen_frame::Status;
use serde_json::json;

use crate::driver::{Group, Python, each_python};

const REQUIREMENTS: [&str; 6] = [
    "numpy",
    "pandas",
    "pydantic>=2",
    "mcp>=1.23",
    "attrs",
    // FastMCP without its servers.
    "fastmcp-slim>=4",
];

/// The folder that the libraries were installed to; `None` when there is no `uv`.
fn installed(python: &Python) -> Option<PathBuf> {
    let program = std::env::current_exe().unwrap();
    let folder = program.ancestors().nth(2).unwrap().join("test-libraries");
    // Other requirements have another folder.
    let what = REQUIREMENTS.concat().replace(['>', '=', '.', '-'], "");
    let target = folder.join(format!("3.{}-{what}", python.minor));
    if target.is_dir() {
        return Some(target);
    }
    let uv = std::env::var_os("RAMEN_UV").unwrap_or_else(|| "uv".into());
    let described = python.describe();
    std::fs::create_dir_all(&folder).unwrap();
    let part = tempfile::tempdir_in(&folder).unwrap();
    let mut command = Command::new(uv);
    command
        .args([
            "pip",
            "install",
            "--quiet",
            "--only-binary",
            ":all:",
            "--target",
        ])
        .arg(part.path())
        .args(["--python", described["executable"].as_str().unwrap()])
        .args(REQUIREMENTS);
    match command.status() {
        Err(error) => {
            ramen_skip::say(&format!("uv cannot be started: {error}"));
            None
        }
        Ok(status) => {
            assert!(status.success(), "uv could not install the libraries");
            std::fs::rename(part.keep(), &target).unwrap();
            Some(target)
        }
    }
}

/// `(row, body, exact JSON)`.
const VALUES: &[(&str, &str, &str)] = &[
    (
        "res03_scalar",
        "import numpy as np\n    return {'n': np.int64(3)}",
        "{\"n\":3}",
    ),
    (
        "res03_array",
        "import numpy as np\n    return np.array([1, 2])",
        "[1,2]",
    ),
    (
        "res03_flag",
        "import numpy as np\n    return np.bool_(True)",
        "true",
    ),
    (
        "matrix",
        "import numpy as np\n    return [np.eye(2), np.float32(0.5), np.array(7)]",
        "[[[1.0,0.0],[0.0,1.0]],0.5,7]",
    ),
    (
        "moments",
        "import numpy as np\n    return [np.datetime64('2026-01-02'), np.array(['2026-01-02', 'NaT'], 'M8[D]'), np.timedelta64(90, 's')]",
        "[\"2026-01-02\",[\"2026-01-02\",null],\"PT1M30S\"]",
    ),
    (
        "frame",
        "import pandas as pd\n    return pd.DataFrame({'a': [1, 2], 'b': ['x', None], 'c': [0.5, float('nan')]})",
        "[{\"a\":1,\"b\":\"x\",\"c\":0.5},{\"a\":2,\"b\":null,\"c\":null}]",
    ),
    (
        "series",
        "import pandas as pd\n    return [pd.Series([1, 2]), pd.Timestamp('2026-01-02'), pd.NaT, pd.NA, pd.Index(['a'])]",
        "[[1,2],\"2026-01-02T00:00:00\",null,null,[\"a\"]]",
    ),
    (
        "res05_model",
        "import pydantic, decimal, datetime\n    class M(pydantic.BaseModel):\n        x: int\n        d: decimal.Decimal\n        t: datetime.timedelta\n        m: 'M | None' = None\n    return M(x=1, d='1.10', t=90, m=M(x=2, d='0', t=0))",
        "{\"x\":1,\"d\":\"1.10\",\"t\":\"PT1M30S\",\"m\":{\"x\":2,\"d\":\"0\",\"t\":\"PT0S\",\"m\":null}}",
    ),
    (
        "res05_model_in_a_list",
        "import pydantic\n    class M(pydantic.BaseModel):\n        x: int\n    return [M(x=1)]",
        "[{\"x\":1}]",
    ),
    (
        "pydantic_dataclass",
        "import pydantic.dataclasses as d\n    @d.dataclass\n    class D:\n        x: int\n    return D(x='1')",
        "{\"x\":1}",
    ),
    (
        "attrs_class",
        "import attrs\n    @attrs.define\n    class P:\n        x: int\n        y: list\n    return P(1, [P(2, [])])",
        "{\"x\":1,\"y\":[{\"x\":2,\"y\":[]}]}",
    ),
    (
        "pandas_durations",
        "import pandas as pd\n    return [pd.Timedelta('90s'), pd.Timedelta('NaT'), pd.Series(pd.to_timedelta(['1 day', None]))]",
        "[\"PT1M30S\",null,[\"P1D\",null]]",
    ),
    (
        "pandas_periods",
        "import pandas as pd\n    return [pd.Period('2026-01', 'M'), pd.period_range('2026-01', periods=2, freq='M')]",
        "[\"2026-01\",[\"2026-01\",\"2026-02\"]]",
    ),
    (
        "structure_alone",
        "from mcp.types import CallToolResult\n    return CallToolResult(content=[], structuredContent={'a': 1})",
        "{\"a\":1}",
    ),
];

const PAGE: &str = "from mcp.types import TextResourceContents\n\n\
     def run():\n    return TextResourceContents(uri='demo://page', text='# t')\n";
const BLOB: &str = "from mcp.types import BlobResourceContents\n\n\
     def run():\n    return BlobResourceContents(uri='demo://blob', blob='iVA=')\n";

#[test]
fn res03_and_res05_values_of_published_libraries_follow_the_written_rules() {
    let mut source = "def run(name):\n    return globals()[name]()\n\n".to_owned();
    for (name, body, _) in VALUES {
        source += &["def ", name, "():\n    ", body, "\n\n"].concat();
    }
    source.push_str(
        "def nan():\n    import numpy as np\n    return np.array([1, float('nan')])\n\n\
         def many_lines():\n    import pydantic\n    class M(pydantic.BaseModel):\n        x: int\n    return M(x='?')\n\n\
         def texts():\n    from mcp.types import TextContent, ImageContent\n    \
             return [TextContent(type='text', text='hi'), ImageContent(type='image', data='iVA=', mimeType='image/png')]\n\n\
         def text():\n    from mcp.types import TextContent\n    return TextContent(type='text', text='one')\n\n\
         def failed():\n    from mcp.types import CallToolResult, TextContent\n    \
             return CallToolResult(content=[TextContent(type='text', text='it\\nbroke')], isError=True)\n\n\
         def whole():\n    from mcp.types import CallToolResult, TextContent\n    \
             return CallToolResult(content=[TextContent(type='text', text='fine')])\n\n\
         def text_of_numpy():\n    import numpy as np\n    return np.str_('t')\n\n\
         def picture():\n    from fastmcp.utilities.types import Image\n    return Image(data=b'\\x89P', format='png')\n\n\
         def pictures():\n    return ['two:', picture(), picture()]\n\n\
         def old_model():\n    import pydantic.v1\n    class M(pydantic.v1.BaseModel):\n        x: int\n        \
             m: 'list[int]' = []\n    return [M(x='1'), M(x=2, m=(3,))]\n\n",
    );
    each_python(|python| {
        let Some(folder) = installed(python) else {
            return;
        };
        let group = Group::new()
            .tool("values", &["name"], &source)
            .resource("page", PAGE)
            .resource("blob", BLOB)
            .with_deps(folder);
        let mut host = group.start(python);
        let mut run = |name: &str| host.call("values", &json!({ "name": name }));
        for (name, _, text) in VALUES {
            let reply = run(name);
            assert_eq!(
                (reply.status, reply.text()),
                (Status::Json, *text),
                "{name}"
            );
        }
        assert!(
            run("nan")
                .error()
                .starts_with("ValueError: Out of range float")
        );
        let error = run("many_lines");
        assert!(
            error
                .error()
                .starts_with("ValidationError: 1 validation error for M x Input")
        );
        let reply = run("texts");
        assert_eq!(reply.status, Status::Content);
        assert_eq!(
            reply.json(),
            json!([{"type": "text", "text": "hi"}, {"type": "image", "data": "iVA=", "mimeType": "image/png"}])
        );
        assert_eq!(run("text").json(), json!([{"type": "text", "text": "one"}]));
        assert_eq!(run("failed").error(), "it broke");
        assert_eq!(
            run("whole").json(),
            json!([{"type": "text", "text": "fine"}])
        );
        assert_eq!(run("text_of_numpy").ok_text(), "t");
        let image = json!({"type": "image", "data": "iVA=", "mimeType": "image/png"});
        assert_eq!(run("picture").json(), json!([image]));
        let text = json!({"type": "text", "text": "two:"});
        assert_eq!(run("pictures").json(), json!([text, image, image]));
        // Its authors gave it up for later Pythons.
        if python.minor < 14 {
            assert_eq!(
                run("old_model").text(),
                "[{\"x\":1,\"m\":[]},{\"x\":2,\"m\":[3]}]"
            );
        }
        assert_eq!(host.run("page").ok_text(), "# t");
        let blob = host.run("blob");
        assert_eq!(
            (blob.status, blob.payload.as_slice()),
            (Status::Blob, &b"\x89P"[..])
        );
    });
}
