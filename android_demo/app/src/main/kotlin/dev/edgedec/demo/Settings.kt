package dev.edgedec.demo

import android.content.SharedPreferences
import dev.edgedec.core.Drafter
import dev.edgedec.core.Message
import dev.edgedec.core.Request
import dev.edgedec.core.Sampling

/** What the user chose; null draws a seed for each text, and leaves the threads to the decoder. */
data class Settings(
    val drafter: Drafter = Drafter.AUTO,
    val temperature: Double = 0.0,
    val seed: Long? = null,
    val length: Int = 128,
    val threads: Int? = null,
) {
    /** Returns the request that continues [prompt], or answers [messages] if there are some. */
    fun request(prompt: String, messages: List<Message>? = null): Request = Request(
        prompt = prompt,
        messages = messages,
        sampling = Sampling(temperature = temperature, seed = seed),
        drafter = drafter,
        maxNewTokens = length,
    )
}

/** Keeps the settings, and which bundle was open, from one start of the app to the next. */
interface Store {
    /** Name of the bundle's folder. */
    var bundle: String?

    /** Returns the settings; the defaults for what was not kept, or by a version that knew others. */
    fun load(): Settings

    fun save(settings: Settings)
}

/** Keeps them as Android does. */
class Preferences(private val preferences: SharedPreferences) : Store {
    override var bundle: String?
        get() = preferences.getString("bundle", null)
        set(name) = preferences.edit().putString("bundle", name).apply()

    override fun load(): Settings {
        val usual = Settings()
        val drafter = preferences.getString("drafter", null)
        return Settings(
            drafter = Drafter.values().firstOrNull { it.name == drafter } ?: usual.drafter,
            temperature = preferences.getString("temperature", null)?.toDoubleOrNull() ?: usual.temperature,
            seed = if (preferences.contains("seed")) preferences.getLong("seed", 0) else null,
            length = preferences.getInt("length", usual.length),
            threads = preferences.getInt("threads", 0).takeIf { it > 0 },
        )
    }

    override fun save(settings: Settings) {
        val editor = preferences.edit()
            .putString("drafter", settings.drafter.name)
            // As text: a Float would draw other tokens than the same temperature elsewhere.
            .putString("temperature", settings.temperature.toString())
            .putInt("length", settings.length)
            .putInt("threads", settings.threads ?: 0)
        settings.seed?.let { editor.putLong("seed", it) } ?: editor.remove("seed")
        editor.apply()
    }
}
