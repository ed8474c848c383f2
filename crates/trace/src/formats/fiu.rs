//! Florida International University (IODedup): text, separated by spaces.
//!
//! `ts_ns pid process lba size op major minor md5`: nanoseconds, the process (whose number is the thread, and whose name may hold spaces), 512-byte
//! blocks, `R` or `W`, the device, which is the volume and named `<major>,<minor>`, and a hash of the content, which
//! we do not use. Source: SNIA IOTTA 390 (Koller and Rangaswami, FAST '10).

use crate::Request;
use crate::error::Bad;
use crate::formats::{LineParser, SECTOR, read_or_write};
use crate::state::{NumberedVolumes, State, request, scaled};
use crate::text::{Fields, whole};

pub(crate) struct Fiu {
    volumes: NumberedVolumes,
}

impl Fiu {
    pub(crate) fn new() -> Fiu {
        Fiu { volumes: NumberedVolumes::new() }
    }
}

impl LineParser for Fiu {
    fn parse(&mut self, line: &[u8], state: &mut State) -> Result<Option<Request>, Bad> {
        let mut fields = Fields::new(line);
        let time = fields.number_word("timestamp")?;
        let process = fields.number_word("process id")?;
        let mut words = 2;
        // The six fields behind the process's name are counted from the end.
        let mut last = [&b""[..]; 6];
        while let Some(word) = fields.next_word() {
            last.rotate_left(1);
            last[5] = word;
            words += 1;
        }
        if words < 9 {
            return Err(Bad::line(line, "`ns pid process sector sectors R|W major minor md5`"));
        }
        let offset = scaled(whole(last[0], "sector")?, SECTOR, "sector")?;
        let length = scaled(whole(last[1], "sectors")?, SECTOR, "sectors")?;
        let operation = read_or_write(last[2], "operation")?;
        let part = |at: usize, name| {
            whole(last[at], name).and_then(|number| {
                u32::try_from(number).map_err(|_| Bad::field(name, last[at], "a device number below 2^32"))
            })
        };
        let (major, minor) = (part(3, "major")?, part(4, "minor")?);
        let device = u64::from(major) << 32 | u64::from(minor);
        let volume = self.volumes.index_of(device, &mut state.volumes, |_| format!("{major},{minor}"))?;
        let request = request(state.since_start(time), volume, operation, offset, length)?;
        Ok(Some(Request { thread: state.threads.number_of(process), ..request }))
    }
}
