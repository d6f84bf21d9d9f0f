package dev.edgedec.guide

import dev.edgedec.core.Figures
import java.io.File
import java.util.concurrent.ArrayBlockingQueue
import java.util.concurrent.BlockingQueue
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test

/** The example of docs/guides/android.md, which a test in Python holds to [Writer] word for word. */
class WriterTest {
    private val demo = generateSequence(File("").absoluteFile) { it.parentFile }
        .map { File(it, "models/demo/bundle") }.first { it.isDirectory }

    @Test
    fun `the example of the guide writes a text, and stops one`() = Writer(demo).use { writer ->
        val shown = StringBuffer()
        val ended = ArrayBlockingQueue<Result<Figures?>>(1)
        writer.write("def read_lines(path):", { shown.append(it) }, { ended.put(Result.success(it)) })
        assertEquals(64, checkNotNull(ended.figures()).newTokens)
        assertTrue(shown.isNotBlank())

        writer.write("import os\n", { writer.stop() }, { ended.put(Result.success(it)) })
        assertEquals("cancelled", checkNotNull(ended.figures()).reason)
    }

    @Test
    fun `the example of the guide says what is wrong with a folder`() = Writer(File("nowhere")).use { writer ->
        val shown = StringBuffer()
        val ended = ArrayBlockingQueue<Result<Figures?>>(1)
        writer.write("text", { shown.append(it) }, { ended.put(Result.success(it)) })
        assertEquals(null, ended.figures())
        assertTrue("nowhere" in shown)
    }

    private fun BlockingQueue<Result<Figures?>>.figures(): Figures? = take().getOrThrow()
}
